"""Who plays, by name: what ``palestra eval`` takes as a policy.

::

    random  oracle        the environment's own players
    module:name           a policy or a function of text
    NAME --base-url URL   a model behind an OpenAI-compatible API
    hf:FOLDER             a model folder or hub name, sampled in this process
    vllm:URL  sglang:URL  a server's model, sampled token by token (--tokenizer where the server's name for it leads nowhere)
"""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from palestra.core import Engine, Policy, Sampling
from palestra.errors import MissingExtra, UsageError
from palestra.policies import as_policy
from palestra.policies.chat import ChatPolicy, Endpoint
from palestra.references import resolve

__all__ = ["PlayerOptions", "named_policy", "playing"]

ENGINES = ("hf", "vllm", "sglang")


@dataclass(frozen=True, kw_only=True)
class PlayerOptions:
    """How a model is asked."""

    base_url: str | None = None
    prices: tuple[float, float] = (0.0, 0.0)
    max_tokens: int = 4096
    temperature: float = 1.0
    shots: int = 0
    tokenizer: str | None = None

    @property
    def sampling(self) -> Sampling:
        return Sampling(max_tokens=self.max_tokens, temperature=self.temperature)

    def about(self, name: str) -> dict[str, str]:
        """What tells this player from one of the same name; nothing for those who are no models."""
        if self.base_url is None and name.partition(":")[0] not in ENGINES:
            return {}
        told = {"temperature": f"{self.temperature:g}", "longest answer": str(self.max_tokens)}
        if self.base_url is not None:
            told["address"] = self.base_url
        if self.shots:
            told["examples shown"] = str(self.shots)
        return told


@asynccontextmanager
async def playing(name: str, options: PlayerOptions) -> AsyncIterator[Policy]:
    """The player that ``name`` means; what it holds is freed at the end."""
    kind, _, place = name.partition(":")
    if options.base_url is not None:
        sent, written = options.prices
        chat = ChatPolicy(Endpoint(name, options.base_url, prompt_price=sent, completion_price=written), options.sampling)
        try:
            yield chat
        finally:
            await chat.close()
    elif kind in ENGINES:
        engine, tokenizer = await _engine(kind, place, options)
        try:
            yield _sampled(name, engine, tokenizer, options)
        finally:
            await engine.close()
    else:
        yield named_policy(name)


async def _engine(kind: str, place: str, options: PlayerOptions) -> tuple[Engine, str]:
    """The engine, and where its tokenizer is."""
    try:
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ImportError:
        raise MissingExtra(f'"{kind}:{place}" needs transformers: pip install "palestra[hf]"') from None
    if kind == "hf":
        from palestra.engines.hf import HFEngine

        try:
            return HFEngine.load(place), options.tokenizer or place
        except (OSError, ValueError) as error:
            raise UsageError(f"there is no model at {place}: {error}") from None
    from palestra.engines.sglang import SGLangEngine
    from palestra.engines.vllm import VLLMEngine

    server = VLLMEngine(place) if kind == "vllm" else SGLangEngine(place)
    await server.connect()
    return server, options.tokenizer or server.model


def _sampled(name: str, engine: Engine, tokenizer: str, options: PlayerOptions) -> Policy:
    import transformers

    from palestra.policies.sampled import SampledPolicy
    from palestra.policies.shots import NoShots, OracleShots
    from palestra.rendering import renderer_for

    try:
        words = transformers.AutoTokenizer.from_pretrained(tokenizer)
    except (OSError, ValueError) as error:
        raise UsageError(f"there is no tokenizer at {tokenizer}: name its folder with --tokenizer ({error})") from None
    shots = OracleShots(options.shots) if options.shots else NoShots()
    policy = SampledPolicy(renderer_for(words), engine, options.sampling, shots=shots)
    policy.name = name
    return policy


def named_policy(name: str) -> Policy:
    """The policy that ``name`` means, if it is no model."""
    if ":" not in name:
        if name not in ("random", "oracle"):
            raise UsageError(
                f'"{name}" is neither random nor oracle; a model behind an API needs its --base-url, one on disk is hf:FOLDER'
            )
        return as_policy(name)
    # Something in a file of this folder is found as it would be by `python -c "import …"`.
    sys.path.insert(0, os.getcwd())
    found = resolve(name)
    if isinstance(found, type):
        found = found()
    if not callable(found) and not hasattr(found, "act"):
        raise UsageError(f"{name} is a {type(found).__name__}, neither a policy nor a function of text")
    return as_policy(found)
