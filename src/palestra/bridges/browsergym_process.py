"""What plays an environment of BrowserGym. ``answering`` runs it with the Python of that package.

It imports nothing of Palestra.
"""

import importlib
from typing import Any

_SUBSETS = ["chat", "bid", "coord", "nav", "tab"]
_DEATHS = ("has been closed", "Target crashed", "Connection closed", "Page crashed", "Browser closed")
"""Words of Playwright if the browser, or the process of a page, has ended."""
_env: Any = None


def answer(asked: dict[str, Any]) -> Any:
    """Answer a question. If the browser has died, the process ends, so that Palestra plays the episode again."""
    try:
        return _answer(asked)
    except Exception as error:
        if any(words in str(error) for words in _DEATHS):
            raise SystemExit(f"the browser has died: {error}") from error
        raise


def close() -> None:
    """End the browsers."""
    if _env is not None:
        _env.close()


def _answer(asked: dict[str, Any]) -> Any:
    global _env  # noqa: PLW0603 - the state of this process
    if asked["do"] == "make":
        _env = _made(asked)
        return {}
    if asked["do"] == "reset":
        return _seen(_env.reset(seed=asked["seed"])[0])
    observation, reward, terminated, truncated, _ = _env.step(asked["action"])
    return {**_seen(observation), "reward": float(reward), "terminated": bool(terminated), "truncated": bool(truncated)}


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
    goal = [part["text"] for part in observation["goal_object"] if part["type"] == "text"]
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
