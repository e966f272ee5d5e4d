"""What reads and grades the tasks of WebArena-Verified. ``answering`` runs it with the Python of that package.

It imports nothing of Palestra.
"""

import importlib
import json
from typing import Any

_judge: Any = None


def answer(asked: dict[str, Any]) -> Any:
    """Answer a question: where the package is, its tasks, or the grade of an episode."""
    global _judge  # noqa: PLW0603 - the state of this process
    if asked["do"] == "where":
        return importlib.import_module("webarena_verified").__path__[0]
    if asked["do"] == "open":
        _judge = _opened(asked["addresses"], asked["data"])
        return [_described(_judge, task) for task in _judge.reader.tasks]
    return _graded(_judge, asked)


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
    hosts = {str(site.value) for site in judge.config.environments}
    starts = [judge.config.render_url(url, list(task.sites)) for url in task.start_urls] if set(sites) <= hosts else []
    kind = str(task.expected_action).lower()
    return {"id": task.task_id, "sites": sites, "goal": task.intent, "starts": starts, "kind": kind}


def _graded(judge: Any, asked: dict[str, Any]) -> dict[str, Any]:
    result = judge.evaluate_task(task_id=asked["task"], agent_response=asked["answer"], network_trace=asked["trace"])
    error = result.error_msg or "; ".join(filter(None, map(_error, result.evaluators_results)))
    return {"score": result.score, "status": str(result.status.value), "error": error}


def _error(evaluator: Any) -> str:
    """Return why an evaluator could not decide. The package counts this as a score of 0.

    An answer in another form can stop the evaluator of answers: that score of 0 is the agent's own.
    """
    if evaluator.status != "error" or evaluator.evaluator_name == "AgentResponseEvaluator":
        return ""
    inside = [assertion.error_msg for assertion in evaluator.assertions or () if assertion.error_msg]
    return "; ".join([evaluator.error_msg] if evaluator.error_msg else inside) or f"{evaluator.evaluator_name} gives no reason"
