r"""Mathematics with a known answer. The last ``\boxed{…}`` is the answer; it is right if it is mathematically equal to the
known one.

One answer ends the episode. The ``-python`` ids give the agent a Python interpreter in a box, so that it can compute over
several turns before it answers. The first answer is final.
"""

import base64
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from io import BytesIO
from typing import Any

from palestra.core import AsyncEnv, Step
from palestra.errors import UsageError
from palestra.foundation.resources.sharing import SharedPerLoop
from palestra.grading import last_boxed
from palestra.grading.maths import MathsGrader
from palestra.grading.readings import Readings
from palestra.suite.data.drawing import DataSource, draw_row, rows_of
from palestra.trajectory import Content, Image, Part, Task, Text

__all__ = ["Maths"]

_HOW = "\n\nReason step by step, and put your final answer into \\boxed{}."


class Maths(AsyncEnv):
    """Solve one problem of the data set ``data``. The reward is 1 for the right answer and 0 for any other.

    The other keywords are those of ``Readings``: how to read an accepted answer that has several readings.
    """

    reward_range = (0.0, 1.0)
    score_range = (0.0, 1.0)

    def __init__(self, data: DataSource, split: str = "", instruction: str | None = None, **readings: Any) -> None:
        self._data = data
        self._split = split
        self._instruction = _HOW if instruction is None else f"\n\n{instruction}" if instruction else ""
        try:
            self._readings = Readings(**readings)
        except (TypeError, ValueError) as error:
            raise UsageError(f"the maths grader cannot take these options: {error}") from None
        self._stack = AsyncExitStack()

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        self._begin(seed, task)
        drawn = draw_row(self._data, self._split, self.task, self.rng)
        await self._stack.aclose()
        self._grader = await self._stack.enter_async_context(_shared_grader())
        self._answer = _plain(drawn.row["answer"])
        text = f"{str(drawn.row['question']).strip()}{self._instruction}"
        images = drawn.row.get("images") or ()
        info = {"data": drawn.provenance}
        return (_with_images(text, images) if images else text), info

    async def step(self, action: str) -> Step:
        answer = last_boxed(action)
        if answer is None:
            return Step("There is no \\boxed{} answer.", 0.0, True, False, {"success": False, "format_error": True})
        right = await self._grader.equivalent(answer, self._answer, self._readings)
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


# ----------------------------------------------------------------------------------------------------- one grader per loop


_graders: SharedPerLoop[None, MathsGrader] = SharedPerLoop(lambda _: MathsGrader(), lambda grader: grader.close())


def _shared_grader() -> AbstractAsyncContextManager[MathsGrader]:
    """Share the grader of the running loop. Its workers start with the first formula and end with the last episode."""
    return _graders.use(None)
