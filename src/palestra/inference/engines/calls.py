"""An engine over a function of another program: token ids in, token ids and log-probs out.

Trainers have a sampling server of their own. ``CallEngine`` makes an ``Engine`` of the one call that all of them offer, so that
``SampledPolicy`` and ``play`` run on it with exact tokens.
"""

from collections.abc import Awaitable, Callable, Sequence
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from palestra.core import EngineSession, Generation, Sampling
from palestra.errors import PolicyError, Unsupported
from palestra.foundation.encoding import Ints, floats, ints
from palestra.trajectory import Finish, Tokens

__all__ = ["CallEngine", "Sampled"]


class Sampled(NamedTuple):
    """What a call has sampled. A plain tuple with these entries is accepted as well."""

    ids: Sequence[int]
    logprobs: Sequence[float]
    """One per token, under the distribution that the token was sampled from."""
    stopped: bool
    """Whether the model ended its turn; ``False`` if the token limit cut it."""
    version: int | Sequence[int] | None = None
    """The version of the weights, or one per token if they changed during the call; by default the engine's ``version``."""


class CallEngine:
    """An ``Engine`` over ``await call(prompt_ids, sampling)``.

    The other program owns the weights. Set ``version`` when it publishes new ones; ``update_weights`` is refused.

    Args:
        call: Samples after a list of token ids, and returns ``Sampled`` or a tuple ``(ids, logprobs, stopped)``. Any number of
            calls may run at once. An exception becomes a failure of the episode.
        context_length: Prompt and sampled tokens together never exceed it.
        version: The version of the weights that the tokens are labelled with.

    Example::

        async def call(prompt_ids, sampling):
            output = await server.generate(prompt_ids, max_tokens=sampling.max_tokens, temperature=sampling.temperature)
            return output.token_ids, output.log_probs, output.stopped

        policy = palestra.SampledPolicy(renderer_for(tokenizer), CallEngine(call, context_length=8192))
    """

    def __init__(self, call: Callable[[list[int], Sampling], Awaitable[Any]], *, context_length: int, version: int = 0) -> None:
        self._call = call
        self.context_length = context_length
        self.version = version

    async def generate(self, prompt: Ints, sampling: Sampling, session: EngineSession | None = None) -> Generation:
        """Sample a continuation of ``prompt`` by one call."""
        version = self.version
        ids, logprobs, stopped, *rest = await self._call(prompt.tolist(), sampling)
        if len(ids) != len(logprobs):
            raise PolicyError(
                f"the call returned {len(ids)} token ids but {len(logprobs)} log-probs; it must return one per id"
            )
        if len(ids) > sampling.max_tokens:
            raise PolicyError(f"the call returned {len(ids)} tokens, more than sampling.max_tokens = {sampling.max_tokens}")
        if np.isnan(sampled := floats(logprobs)).any():
            raise PolicyError("the call returned a log-prob that is not a number; it must return that of every sampled token")
        labelled: Any = rest[0] if rest and rest[0] is not None else version
        # Servers return the version as an int of Python or of NumPy.
        first, updates = (int(labelled), ()) if isinstance(labelled, Integral) else _changes(labelled, len(ids))
        tokens = Tokens(prompt, ints(ids), sampled, first, updates)
        return Generation(tokens, Finish.STOP if stopped else Finish.LENGTH)

    async def update_weights(self, source: Any, version: int) -> None:
        """Refused: the program behind the call loads its own weights."""
        raise Unsupported("CallEngine has no weights to update: the program behind the call owns them; set engine.version")

    async def pause(self) -> None:
        """Do nothing: the program behind the call decides when it samples."""

    async def resume(self) -> None:
        """Do nothing: the program behind the call decides when it samples."""

    async def close(self) -> None:
        """Do nothing: the program behind the call stays open."""


def _changes(versions: Sequence[int], count: int) -> tuple[int, tuple[tuple[int, int], ...]]:
    """The version of the first token, and ``(index, version)`` of every later change."""
    if len(versions) != count:
        raise PolicyError(f"the call returned {count} token ids but {len(versions)} versions; it must return one per id")
    changes = [(at, int(version)) for at, version in enumerate(versions) if at == 0 or version != versions[at - 1]]
    return (changes[0][1], tuple(changes[1:])) if changes else (0, ())
