"""Environments of BrowserGym as Palestra environments: ``palestra.make("browsergym:miniwob.click-test")``.

BrowserGym pins a Playwright of 2024, so each environment runs in a process with the Python of another virtual environment. The
browser is Debian's or the user's own Chromium. The agent writes the actions of Palestra's ``web:`` environments, in both forms;
they become BrowserGym's calls, such as ``click('13')``. No other code of the agent reaches BrowserGym. The browser is not in
Palestra's jail: it reaches what the process reaches.
"""

import importlib.util
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from palestra.bridges.browsergym_calls import call_of
from palestra.core import AsyncEnv, Step
from palestra.foundation.processes.other_python import OtherPython, named_python
from palestra.trajectory import Content, StopReason, Task
from palestra.worlds.web.actions import described, read_action
from palestra.worlds.web.jail import chromium_program
from palestra.worlds.web.snapshot import cleaned

__all__ = ["PYTHON", "BrowserGymEnv"]

PYTHON = "PALESTRA_BROWSERGYM_PYTHON"
"""The environment variable that names the Python which has BrowserGym."""
RESET_SECONDS, STEP_SECONDS = 180.0, 120.0
LARGEST_SEED = 2**31 - 1
_LONGEST_ERROR = 500
_ID = re.compile(r"[a-zA-Z]{0,8}\d{1,6}")
_SHOWN = re.compile(r"^\s*\[(\w+)\] (\w+)", re.MULTILINE)
_PASSED = re.compile(r"HOME|MINIWOB_URL|WA_\w+")
"""Variables that the packages of BrowserGym read."""
_SCRIPT = Path(__file__).with_name("browsergym_process.py")
_INSTALL = 'uv venv browsergym && uv pip install --python browsergym/bin/python "browsergym-core==0.14.3"'
_ACTIONS = (
    *("click", "double_click", "type", "select", "press", "hover", "drag", "scroll", "click_at", "drag_at", "wait"),
    *("goto", "go_back", "go_forward", "new_tab", "tab_focus", "close_tab", "stop"),
)
_HOW = (
    "You use a web page in a browser. Each line below is an element of the page; some have an id in brackets. Write one action "
    "as the last line of your message, for example: click [13]\n{actions}\nYou have {turns} actions."
)


class BrowserGymEnv(AsyncEnv):
    """An environment of BrowserGym.

    Args:
        path: The id in BrowserGym's registry, without ``browsergym/``: ``miniwob.click-test``, ``openended``.
        module: The module that registers the id; by default ``browsergym.`` and what stands before the first period of the id.
        max_turns: The turn limit.
        settings: Keywords of BrowserGym's task, such as ``start_url`` and ``goal`` of ``openended``.
    """

    reusable = True
    counts_turns = True
    max_turns: int

    def __init__(self, path: str, *, module: str = "", max_turns: int = 30, **settings: Any) -> None:
        family = path.partition(".")[0]
        self._order = {
            "do": "make",
            "id": path,
            "module": module or ("browsergym.core" if family == path else f"browsergym.{family}"),
            "options": settings,
        }
        self._judges = path != "openended"  # this task never ends by itself, and its reward is always 0
        self.max_turns = max_turns
        self._process: OtherPython | None = None
        self._tree = ""

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        self._begin(seed, task)
        if self._process is None or self._process.pid is None:
            self._process = OtherPython("BrowserGym", _python, _SCRIPT, _variables())
            await self._process.begin({**self._order, "chromium": chromium_program()}, RESET_SECONDS)
        page = await self._process.ask({"do": "reset", "seed": self.task.seed & LARGEST_SEED}, RESET_SECONDS)
        self._turn, self._score, self._tree = 0, 0.0, page["tree"]
        how = _HOW.format(actions=described(_ACTIONS), turns=self.max_turns)
        return f"{how}\n\n{_text(page)}", {"max_turns": self.max_turns}

    async def step(self, action: str) -> Step:
        assert self._process is not None
        self._turn += 1
        order = read_action(action, _ACTIONS, ids=_ID)
        last = self._turn >= self.max_turns
        call = "" if order.problem else call_of(order)
        if not call:
            problem = order.problem or "Only addresses that begin with http:// or https:// can be opened."
            return self._ended(Step(problem, 0.0, False, last, {"format_error": bool(order.problem)}))
        page = await self._process.ask({"do": "step", "action": call}, STEP_SECONDS)
        self._tree = page["tree"]
        self._score += page["reward"]
        over = page["terminated"] or order.name == "stop"
        return self._ended(Step(_text(page), page["reward"], over, not over and (page["truncated"] or last), {}))

    def _ended(self, step: Step) -> Step:
        info = dict(step.info)
        if (step.terminated or step.truncated) and self._judges:
            info["success"] = self._score >= 1.0
        if step.truncated and self._turn >= self.max_turns:
            info["stop_reason"] = StopReason.TURN_LIMIT
        return step._replace(info=info)

    async def sample_random_action(self) -> str:
        """Return a click on a random element, or a random number in a random field."""
        elements = _SHOWN.findall(self._tree)
        if not elements:
            return "wait"
        id, role = elements[int(self.action_rng.integers(len(elements)))]
        return (
            f"type [{id}] [{int(self.action_rng.integers(100))}] [0]" if role in ("textbox", "searchbox") else f"click [{id}]"
        )

    async def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            await process.end()


def _text(page: Mapping[str, Any]) -> str:
    """Return the observation. BrowserGym quotes the texts of pages in its tree; the goal, titles and errors are quoted here."""
    lines = [f"Task: {_quoted(page['goal'])}", f"Address: {cleaned(page['url'])}"]
    if len(page["urls"]) > 1:
        lines += [
            f"Tab {number}{' (shown)' if number == page['tab'] else ''}: {_quoted(title)} at {cleaned(url)}"
            for number, (title, url) in enumerate(zip(page["titles"], page["urls"], strict=True))
        ]
    if page["focused"]:
        lines.append(f"Focused: [{page['focused']}]")
    if page["error"]:
        lines.insert(0, f"The action failed: {_quoted(page['error'][:_LONGEST_ERROR])}")
    return "\n".join((*lines, page["tree"]))


def _quoted(text: str) -> str:
    """Return a text of a page in quotes and without characters that end a line."""
    return cleaned(json.dumps(text, ensure_ascii=False))


def _python() -> str:
    return named_python(PYTHON, _INSTALL)


def _variables() -> dict[str, str]:
    """Return the variables of the process. Without ``MINIWOB_URL``, the pages of the installed package miniwob are used."""
    passed = {name: value for name, value in os.environ.items() if _PASSED.fullmatch(name)}
    pages = importlib.util.find_spec("miniwob")
    if "MINIWOB_URL" not in passed and pages is not None and pages.origin is not None:
        passed["MINIWOB_URL"] = Path(pages.origin).with_name("html").joinpath("miniwob").as_uri() + "/"
    return passed
