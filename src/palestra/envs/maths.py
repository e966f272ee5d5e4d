r"""Mathematics with a known answer. The last ``\boxed{…}`` is the answer; it is right if it means the same as the known one.

One answer ends the episode. The ``-python`` ids lend the agent a Python interpreter in a box, so that it may compute over
several turns before it answers; it is never told that an answer was wrong and asked again.
"""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from io import BytesIO
from typing import Any
from weakref import WeakKeyDictionary

from palestra.core import AsyncEnv, Step
from palestra.envs.data.drawing import draw_row, rows_of
from palestra.grading import last_boxed
from palestra.grading.maths import MathsGrader, quick_verdict
from palestra.trajectory import Content, Image, Part, Task, Text

__all__ = ["Maths"]

_HOW = "\n\nReason step by step, and put your final answer into \\boxed{}."


class Maths(AsyncEnv):
    """Solve one problem of the data set ``data``. The reward is 1 for the right answer and 0 for any other."""

    reward_range = (0.0, 1.0)

    def __init__(self, data: str, split: str = "") -> None:
        self._data = data
        self._split = split
        self._stack = AsyncExitStack()

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        self._begin(seed, task)
        drawn = draw_row(self._data, self._split, self.task, self.rng)
        await self._stack.aclose()
        self._grader = await self._stack.enter_async_context(_shared_grader())
        self._answer = _plain(drawn.row["answer"])
        text = f"{str(drawn.row['question']).strip()}{_HOW}"
        images = drawn.row.get("images") or ()
        info = {"data": drawn.provenance}
        return (_with_images(text, images) if images else text), info

    async def step(self, action: str) -> Step:
        answer = last_boxed(action)
        if answer is None:
            return Step("There is no \\boxed{} answer.", 0.0, True, False, {"success": False, "format_error": True})
        right = quick_verdict(answer, self._answer)
        if right is None:
            right = await self._grader.equivalent(answer, self._answer)
        return Step("", float(right), True, False, {"success": right})

    async def close(self) -> None:
        await self._stack.aclose()

    async def oracle(self) -> str:
        return f"\\boxed{{{self._answer}}}"

    async def sample_random_action(self) -> str:
        """The answer to another problem."""
        _, rows = rows_of(self._data, self._split, self.task)
        return f"\\boxed{{{_plain(rows[int(self.action_rng.integers(len(rows)))]['answer'])}}}"


def _plain(answer: Any) -> str:
    """The answer without a box of its own; the first of several."""
    text = str(answer[0] if isinstance(answer, list | tuple) and answer else answer).strip()
    return last_boxed(text) or text


def _with_images(text: str, images: Any) -> tuple[Part, ...]:
    several = images if isinstance(images, list | tuple) else [images]
    return (*(Image(_bytes(image)) for image in several), Text(text))


def _bytes(image: Any) -> bytes:
    """The bytes of a picture: as they are, in base64, in a field called ``bytes``, or of an object that can save itself."""
    if isinstance(image, dict):
        image = image["bytes"]
    if isinstance(image, bytes):
        return image
    if isinstance(image, str):
        return base64.b64decode(image)
    buffer = BytesIO()
    image.save(buffer, format="PNG")
    return buffer.getvalue()


# ----------------------------------------------------------------------------------------------------- one grader a loop


class _Held:
    def __init__(self) -> None:
        self.grader = MathsGrader()
        self.holders = 0


_graders: "WeakKeyDictionary[asyncio.AbstractEventLoop, _Held]" = WeakKeyDictionary()


@asynccontextmanager
async def _shared_grader() -> AsyncIterator[MathsGrader]:
    """The grader of the running loop. Its workers start with the first formula and end with the last episode."""
    loop = asyncio.get_running_loop()
    held = _graders.get(loop)
    if held is None:
        held = _graders[loop] = _Held()
    held.holders += 1
    try:
        yield held.grader
    finally:
        held.holders -= 1
        if not held.holders:
            del _graders[loop]
            await held.grader.close()
