"""The levels of what an engine lets the gateway record: exact tokens with log-probs, tokens alone, or nothing but text."""

from enum import IntEnum

import numpy as np

from palestra.core import Engine, Renderer, Sampling
from palestra.errors import UsageError
from palestra.trajectory import Message

__all__ = ["Capture", "probe", "require"]


class Capture(IntEnum):
    """The level of capture. Training needs ``LOGPROBS``, or ``TOKENS`` if the learner computes the log-probs itself."""

    TEXT = 0
    TOKENS = 1
    LOGPROBS = 2


async def probe(engine: Engine | None, renderer: Renderer) -> Capture:
    """Sample a few tokens and return what was captured. ``None`` stands for an API that returns text only."""
    if engine is None:
        return Capture.TEXT
    prompt = renderer.first([Message("user", "Hello")])
    tokens, _ = await engine.generate(prompt, Sampling(max_tokens=4, stop_ids=renderer.stop_ids, seed=0))
    if not len(tokens.ids) or not np.array_equal(tokens.prompt, prompt):
        return Capture.TEXT
    sound = len(tokens.logprobs) == len(tokens.ids) and bool(np.isfinite(tokens.logprobs).all())
    # A model that is certain of four tokens in a row is rarer than an engine that fills in zeros.
    return Capture.LOGPROBS if sound and bool((tokens.logprobs != 0).any()) else Capture.TOKENS


def require(captured: Capture, needed: Capture = Capture.TOKENS) -> None:
    """Raise ``UsageError`` if ``captured`` is below ``needed``."""
    if captured < needed:
        raise UsageError(
            f"the engine captures {captured.name.lower()}, and training needs {needed.name.lower()}: use an engine that "
            f"returns the sampled token ids (local, vllm or sglang)"
        )
