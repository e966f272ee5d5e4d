"""Policies by name, as ``palestra eval`` takes them.

::

    random  oracle        the environment's own players
    tiny                  the trained model of ``palestra demo``, which comes with the package
    module:name           a policy or a function of text
    NAME --base-url URL   a model behind an OpenAI-compatible API
    hf:FOLDER             a model folder or hub name, sampled in this process
    vllm:URL  sglang:URL  a server's model, sampled token by token (--tokenizer if the server's name for it is no tokenizer)
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from urllib.parse import urlsplit

from palestra.core import Engine, Policy, Sampling
from palestra.errors import MissingExtra, UsageError
from palestra.foundation.confidential import mask, mask_url
from palestra.foundation.installation import how_to_install
from palestra.foundation.references import resolve, search_here
from palestra.policies import as_policy
from palestra.policies.history import History
from palestra.policies.scripted import BUILT_IN
from palestra.policies.strategy import named_strategy
from palestra.recipes.play import HISTORY
from palestra.registry.specs import parse_options

__all__ = ["PlayerOptions", "named_policy", "playing"]

ENGINES = ("hf", "vllm", "sglang")


@dataclass(frozen=True, kw_only=True)
class PlayerOptions:
    """How a model is called."""

    base_url: str | None = None
    prices: tuple[float, float] = (0.0, 0.0)
    max_tokens: int = 4096
    temperature: float = 1.0
    shots: int = 0
    history: str | None = None
    tokenizer: str | None = None
    strategy: str | None = None

    @property
    def sampling(self) -> Sampling:
        return Sampling(max_tokens=self.max_tokens, temperature=self.temperature)

    def about(self, name: str) -> dict[str, str]:
        """The settings that tell this player apart from another of the same name. Only models have any."""
        if self.base_url is None and name.partition(":")[0] not in ENGINES:
            return {}
        told = {"temperature": f"{self.temperature:g}", "longest answer": str(self.max_tokens)}
        if self.base_url is not None:
            told["address"] = mask_url(self.base_url)
        if self.shots:
            told["examples shown"] = str(self.shots)
        if self.history:
            told["history"] = self.history
        return told

    def prompts(self) -> History | None:
        """How much of an episode the model sees; ``None`` for everything."""
        if self.history is None:
            return None
        use, options = parse_options(self.history)
        history: History = HISTORY.load({"use": use, **options})()
        return history


@asynccontextmanager
async def playing(name: str, options: PlayerOptions) -> AsyncIterator[Policy]:
    """The policy that ``name`` means, in its strategy; its connections and its engine are closed at the end."""
    if options.history is not None and options.base_url is None and name.partition(":")[0] not in ENGINES:
        raise UsageError(f"--history is for models: {name} decides itself what it reads")
    around = None if options.strategy is None else named_strategy(options.strategy)
    async with _plain(name, options) as policy:
        yield policy if around is None else around(policy)


@asynccontextmanager
async def _plain(name: str, options: PlayerOptions) -> AsyncIterator[Policy]:
    kind, _, location = name.partition(":")
    if options.base_url is not None:
        from palestra.policies.chat import ChatPolicy, Endpoint  # aiohttp is a third of the time to load the commands

        _check_address(options.base_url, "--base-url")
        sent, written = options.prices
        endpoint = Endpoint(name, options.base_url, prompt_price=sent, completion_price=written)
        chat = ChatPolicy(endpoint, options.sampling, history=options.prompts())
        try:
            yield chat
        finally:
            await chat.close()
    elif kind in ENGINES:
        engine, tokenizer = await _engine(kind, location, options)
        try:
            yield _sampled(name, engine, tokenizer, options)
        finally:
            await engine.close()
    else:
        yield named_policy(name)


async def _engine(kind: str, location: str, options: PlayerOptions) -> tuple[Engine, str]:
    """The engine, and the folder or hub name of its tokenizer."""
    try:
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ImportError:
        raise MissingExtra(f'"{kind}:{location}" needs transformers: {how_to_install("hf")}') from None
    if kind == "hf":
        from palestra.inference.engines.hf import HFEngine

        try:
            return HFEngine.load(location), options.tokenizer or location
        except (OSError, ValueError) as error:
            raise UsageError(f"there is no model at {location}: {error}") from None
    _check_address(location, f"{kind}:URL")
    from palestra.inference.servers.sglang import SGLangEngine
    from palestra.inference.servers.vllm import VLLMEngine

    server = VLLMEngine(location) if kind == "vllm" else SGLangEngine(location)
    await server.connect()
    return server, options.tokenizer or server.model


def _check_address(url: str, where: str) -> None:
    """Refuse an address that no server can have, instead of retrying it."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f'{where} needs an address that starts with http:// or https://, got "{url}"')


def _sampled(name: str, engine: Engine, tokenizer: str, options: PlayerOptions) -> Policy:
    import transformers

    from palestra.inference.rendering import renderer_for
    from palestra.policies.sampled import SampledPolicy
    from palestra.policies.shots import NoShots, OracleShots

    try:
        words = transformers.AutoTokenizer.from_pretrained(tokenizer)
    except (OSError, ValueError) as error:
        raise UsageError(f"there is no tokenizer at {tokenizer}: name its folder with --tokenizer ({error})") from None
    shots = OracleShots(options.shots) if options.shots else NoShots()
    policy = SampledPolicy(renderer_for(words), engine, options.sampling, shots=shots, history=options.prompts())
    policy.name = mask(name)
    return policy


def named_policy(name: str) -> Policy:
    """The policy that ``name`` means; models are not among them."""
    if ":" not in name:
        if name not in BUILT_IN:
            raise UsageError(_unknown(name))
        return as_policy(name)
    search_here()
    policy = resolve(name)
    if isinstance(policy, type):
        try:
            policy = policy()
        except Exception as error:
            raise UsageError(
                f"{name}() failed: {type(error).__name__}: {error}. A policy's class takes no arguments"
            ) from error
    if not callable(policy) and not hasattr(policy, "act"):
        raise UsageError(f"{name} is a {type(policy).__name__}, neither a policy nor a function of text")
    return as_policy(policy)


def _unknown(name: str) -> str:
    close = get_close_matches(name, BUILT_IN, n=1)
    guess = f"Did you mean {close[0]}? " if close else ""
    return (
        f'"{name}" is none of {", ".join(BUILT_IN)}. {guess}Your own policy is module:name, a model behind an API '
        f"needs its --base-url, and a model on disk is hf:FOLDER"
    )
