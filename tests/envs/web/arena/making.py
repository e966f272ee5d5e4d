"""Writes ``own_tasks.json`` and ``traces.json``: ``python -m tests.envs.web.arena.making``.

The first file has 20 tasks in the format of WebArena-Verified on Palestra's own sites. What is right is the
answer of the errand. The second file has 20 traces, right and wrong, and the score that the package
gave each of them when it was called directly.
"""

import json
import os
import subprocess
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from palestra.envs.web.arena.recording import entry
from palestra.envs.web.arena.worker import PYTHON
from palestra.envs.web.browsers import shared_browsers
from palestra.envs.web.sites.boxes import shared_boxes
from palestra.envs.web.sites.env import Errands
from palestra.envs.web.sites.errands import NotShown, Walk
from palestra.references import resolve

__all__ = [
    "ADDRESSES",
    "OWN",
    "PLACES",
    "TOWNS",
    "TRACES",
    "answer_of",
    "boxes_of",
    "enter_all",
    "next_action",
    "oracle_action",
]

OWN, TRACES = Path(__file__).with_name("own_tasks.json"), Path(__file__).with_name("traces.json")
ADDRESSES = {"shopping": "http://shop.test", "reddit": "http://forum.test", "gitlab": "http://tracker.test"}
TOWNS = {
    site: f"palestra.envs.web.sites.{name}.town:town"
    for site, name in {"shopping": "shop", "reddit": "forum", "gitlab": "tracker"}.items()
}
_TEMPLATES = {
    "shopping": ("price", "cheapest", "total", "heavier"),
    "reddit": ("author", "liked", "busier"),
    "gitlab": ("owner", "active", "urgent"),
}
PLACES = [(site, template) for site, templates in _TEMPLATES.items() for template in templates for _ in range(2)]
"""The tasks: the place is the id, and the seed of the world is the place plus 30."""


def boxes_of(place: int) -> dict[str, Any]:
    """Return the argument ``boxes`` of a task."""
    site, template = PLACES[place]
    return {"town": TOWNS[site], "account": template, "world": place + 30}


def next_action(env: Errands, place: int) -> str:
    """Return what the oracle of the errand does next; its answer is not in the format of the benchmark."""
    boxes = boxes_of(place)
    return oracle_action(env, boxes["town"], boxes["world"], boxes["account"])


def oracle_action(env: Errands, town: str, world: int, template: str) -> str:
    """Return what the oracle of an errand does next."""
    try:
        return str(resolve(town).errand(world, template).plan(Walk(env._seen, env._acted)))
    except NotShown:
        return "scroll [down]"


def answer_of(kind: str, said: str) -> str:
    """Return an answer in the format of the benchmark."""
    data = [said] if kind == "retrieve" else None
    return json.dumps({"task_type": kind.upper(), "status": "SUCCESS", "retrieved_data": data, "error_details": None})


def _task(place: int) -> dict[str, Any]:
    site, template = PLACES[place]
    errand = resolve(boxes_of(place)["town"]).errand(boxes_of(place)["world"], template)
    schema = {"type": "array", "items": {"type": "string"}}
    expected = {"task_type": "retrieve", "status": "SUCCESS", "retrieved_data": [errand.answers[0]]}
    return {
        "sites": [site],
        "task_id": place,
        "intent_template_id": place,
        "start_urls": [f"__{site.upper()}__"],
        "intent": errand.goal,
        "intent_template": errand.goal,
        "instantiation_dict": {},
        "revision": 1,
        "eval": [{"evaluator": "AgentResponseEvaluator", "results_schema": schema, "expected": expected}],
    }


_DIRECT = """
import json, sys
from webarena_verified.api import WebArenaVerified
from webarena_verified.types.config import WebArenaVerifiedConfig
order = json.load(sys.stdin)
judge = WebArenaVerified(config=WebArenaVerifiedConfig(environments=order["environments"]))
tasks = json.loads(judge.config.test_data_file.read_text())
if "traces" not in order:
    print(json.dumps(tasks))
else:
    score = lambda one: judge.evaluate_task(task_id=one["task"], agent_response=one["answer"], network_trace=one["trace"]).score
    print(json.dumps([score(one) for one in order["traces"]]))
"""


def _direct(**order: Any) -> Any:
    """Call the package without Palestra."""
    environments = {f"__{site.upper()}__": {"urls": [address]} for site, address in ADDRESSES.items()}
    asked = json.dumps({"environments": environments, **order})
    done = subprocess.run([os.environ[PYTHON], "-I", "-c", _DIRECT], input=asked, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def _traces() -> list[dict[str, Any]]:
    """Return traces of tasks of the package: for each task a right one, and one that is wrong in one thing."""
    made: list[dict[str, Any]] = []
    for task in _direct():
        if len(made) == 20:
            break
        site = task["sites"][0]
        events = [one["expected"] for one in task["eval"][1:]]
        plain = all(set(one) <= {"url", "http_method", "response_status", "post_data"} for one in events)
        if (
            len(task["sites"]) > 1
            or site not in ADDRESSES
            or not plain
            or sum(one["task"] // 100 == task["task_id"] // 100 for one in made) >= 4
        ):
            continue
        entries = [
            entry(("GET", f"{ADDRESSES[site]}/", [("Accept", "text/html")], b""), (200, [("Content-Type", "text/html")], b""))
        ]
        for one in events:
            address = one["url"] if isinstance(one["url"], str) else one["url"][0]
            method, url = one.get("http_method", "GET"), address.replace(f"__{site.upper()}__", ADDRESSES[site])
            body = json.dumps(one["post_data"]).encode() if "post_data" in one else b""
            headers = [("Accept", "text/html"), ("Content-Type", "application/json")]
            answer = [("Content-Type", "text/html"), *([("Location", "/")] if one.get("response_status") == 302 else [])]
            entries.append(entry((method, url, headers, body), (one.get("response_status", 200), answer, b"")))
        given = task["eval"][0]["expected"]
        right = {"task_type": given["task_type"].upper(), "status": given["status"], "retrieved_data": given["retrieved_data"]}
        wrong = (right, entries[:1]) if events else ({**right, "retrieved_data": ["something else"]}, entries)
        for said, trace in ((right, entries), wrong):
            made.append({"task": task["task_id"], "answer": json.dumps(said), "trace": trace})
    return made


async def enter_all(stack: AsyncExitStack) -> None:
    """Keep a browser and the warm process of each site from one episode to the next."""
    await stack.enter_async_context(shared_browsers())
    for town in TOWNS.values():
        for site in resolve(town).sites:
            await stack.enter_async_context(shared_boxes(site))


def main() -> None:
    """Write both files."""
    OWN.write_text(json.dumps([_task(place) for place in range(len(PLACES))], indent=1) + "\n")
    traces = _traces()
    for one, score in zip(traces, _direct(traces=traces), strict=True):
        one["score"] = score
    TRACES.write_text(json.dumps(traces, indent=0) + "\n")
    print([(one["task"], one["score"]) for one in traces])


if __name__ == "__main__":
    main()
