"""The process that reads and grades the tasks of WebArena-Verified. It runs in the environment of that package.

Palestra starts this file by its path with another Python, so it imports nothing of Palestra. Each line of the input is a
question in JSON, each line of the output its answer.
"""

import importlib
import json
import os
import sys
import traceback
from typing import Any


def main() -> None:
    """Answer until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the package prints is no answer
    judge: Any = None
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            if asked["do"] == "open":
                judge = _opened(asked["addresses"], asked["data"])
                answer: Any = [_described(judge, task) for task in judge.reader.tasks]
            else:
                answer = _graded(judge, asked)
        except Exception:
            answer = {"failure": traceback.format_exc()}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _opened(addresses: dict[str, str], data: str) -> Any:
    """Return the evaluator of the package with its tasks. If they are no subset, the package refuses all but 812 tasks."""
    config = importlib.import_module("webarena_verified.types.config").WebArenaVerifiedConfig
    options: dict[str, Any] = {"test_data_file": data} if data else {}
    environments = {f"__{site.upper()}__": {"urls": [address]} for site, address in addresses.items()}
    made = config(environments=environments, **options)
    inside = "webarena_verified.api.internal"
    reader = importlib.import_module(f"{inside}.data_reader").WebArenaVerifiedDataReader(made, _all_of(data) if data else None)
    return importlib.import_module(f"{inside}.evaluator").WebArenaVerifiedEvaluator(config=made, reader=reader)


def _all_of(data: str) -> Any:
    """Return all tasks of a file as a subset."""
    subset = importlib.import_module("webarena_verified.types.data").TaskSubset
    with open(data, encoding="utf-8") as file:
        ids = [task["task_id"] for task in json.load(file)]
    return subset(task_ids=ids, checksum=subset.compute_checksum(ids))


def _described(judge: Any, task: Any) -> dict[str, Any]:
    sites = [str(site.value) for site in task.sites]
    known = {str(site.value) for site in judge.config.environments}
    starts = [judge.config.render_url(one, list(task.sites)) for one in task.start_urls] if set(sites) <= known else []
    kind = str(task.expected_action).lower()
    return {"id": task.task_id, "sites": sites, "goal": task.intent, "starts": starts, "kind": kind}


def _graded(judge: Any, asked: dict[str, Any]) -> dict[str, Any]:
    result = judge.evaluate_task(task_id=asked["task"], agent_response=asked["answer"], network_trace=asked["trace"])
    error = result.error_msg or "; ".join(filter(None, map(_error, result.evaluators_results)))
    return {"score": result.score, "status": str(result.status.value), "error": error}


def _error(one: Any) -> str:
    """Return why an evaluator could not decide. The package counts this as a score of 0.

    An answer in another form can stop the evaluator of answers: that score of 0 is the agent's own.
    """
    if one.status != "error" or one.evaluator_name == "AgentResponseEvaluator":
        return ""
    inside = [assertion.error_msg for assertion in one.assertions or () if assertion.error_msg]
    return "; ".join([one.error_msg] if one.error_msg else inside) or f"{one.evaluator_name} gives no reason"


if __name__ == "__main__":
    main()
