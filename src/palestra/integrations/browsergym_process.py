"""The process in which an environment of BrowserGym runs. It runs in the virtual environment of that package.

Palestra starts this file by its path with another Python, so it imports nothing of Palestra. Each line of the input is a
question in JSON, each line of the output its answer.
"""

import importlib
import json
import os
import sys
import traceback
from typing import Any

_SUBSETS = ["chat", "infeas", "bid", "coord", "nav", "tab"]


def main() -> None:
    """Answer until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the package prints is no answer
    env: Any = None
    try:
        for line in sys.stdin:
            asked = json.loads(line)
            try:
                if asked["do"] == "make":
                    env = _made(asked)
                    answer: Any = {}
                elif asked["do"] == "reset":
                    answer = _seen(env.reset(seed=asked["seed"])[0])
                else:
                    observation, reward, terminated, truncated, _ = env.step(asked["action"])
                    ended = {"terminated": bool(terminated), "truncated": bool(truncated)}
                    answer = {**_seen(observation), "reward": float(reward), **ended}
            except Exception:
                answer = {"failure": traceback.format_exc()}
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
    finally:
        if env is not None:
            env.close()


def _made(asked: dict[str, Any]) -> Any:
    """Make the environment. Every browser of the package is the Chromium that Palestra names: it has no option for this."""
    kind = importlib.import_module("playwright.sync_api").BrowserType
    launch = kind.launch
    kind.launch = lambda self, **options: launch(self, **{"executable_path": asked["chromium"], **options})
    importlib.import_module(asked["module"])
    actions = importlib.import_module("browsergym.core.action.highlevel").HighLevelActionSet(_SUBSETS, multiaction=True)
    options = {"task_kwargs": asked["options"], "action_mapping": actions.to_python_code, "disable_env_checker": True}
    return importlib.import_module("gymnasium").make(f"browsergym/{asked['id']}", **options)


def _seen(observation: dict[str, Any]) -> dict[str, Any]:
    flatten = importlib.import_module("browsergym.utils.obs").flatten_axtree_to_str
    goal = [one["text"] for one in observation["goal_object"] if one["type"] == "text"]
    return {
        "goal": "\n".join(goal),
        "url": observation["url"],
        "titles": list(observation["open_pages_titles"]),
        "urls": list(observation["open_pages_urls"]),
        "tab": int(observation["active_page_index"][0]),
        "tree": flatten(observation["axtree_object"]),
        "focused": observation["focused_element_bid"],
        "error": observation["last_action_error"],
    }


if __name__ == "__main__":
    main()
