"""The parts of a run that a recipe names: import them, check them, and register the environments that a recipe puts together.

``load_parts`` imports every part before a model is loaded, so a misspelled name costs a second. The palestra command first
adds the working folder to the search path (``references.search_here``); ``train()`` in Python does not.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from palestra.agents import CallBudget, Program
from palestra.core import AsyncEnv, Engine, Policy, Tool
from palestra.foundation.references import Hook, Role, hook, is_reference, parse_hook
from palestra.foundation.references import resolve as import_reference
from palestra.inference.setup import EngineSetup
from palestra.policies.sampled import SampledPolicy
from palestra.recipes.algorithms import ADVANTAGE, HORIZON, LOSS
from palestra.recipes.config import TrainConfig
from palestra.recipes.engine import ENGINE, TRANSFER
from palestra.recipes.learner import SCHEDULE
from palestra.recipes.play import (
    DEMONSTRATOR,
    DIFFICULTY,
    GRADER,
    GROUP_REWARD,
    OPPONENT,
    POLICY,
    PROMPT_HISTORY,
    TEACHER,
    VARIANT_TOOL,
    VARIANT_WRAPPER,
    WRITER,
    Variant,
)
from palestra.registry import register, spec
from palestra.wrappers.attempts import ATTEMPTS, Attempts
from palestra.wrappers.lending import lend, named_tool, named_wrapper

__all__ = [
    "RunParts",
    "agent",
    "engine_setup",
    "load_parts",
    "names_in_variants",
    "references_of",
    "register_variants",
    "sampled",
]


def sampled(sampled: SampledPolicy) -> Policy:
    """Return the policy that samples one reply per turn: the default of ``policy`` in a recipe."""
    return sampled


def agent(
    sampled: SampledPolicy,
    *,
    program: str,
    auxiliary: bool = False,
    calls: int | None = None,
    tokens: int | None = None,
    grace: float = 5.0,
    variables: Sequence[str] = (),
) -> Policy:
    """Return the policy that plays with an agent of another framework, which samples as ``sampled`` does."""
    return Program(
        program,
        sampled.engine,
        sampled.renderer,
        sampled.sampling,
        budget=CallBudget(calls, tokens),
        auxiliary=auxiliary,
        grace=grace,
        variables=tuple(variables),
    )


def engine_setup(
    config: TrainConfig, model: str, folder: Path, tokenizer: Any, say: Callable[[str], None] = lambda _: None
) -> EngineSetup:
    """Return what the engine of a run is built from."""
    rank = 0 if config.model.lora is None else config.model.lora.rank
    return EngineSetup(config.engine, model, folder, tokenizer, config.model.device, rank, config.play.deadline, say)


class RunParts(NamedTuple):
    """The parts that a run is put together from, imported. The other parts are loaded by the owners of their options."""

    engine: Callable[[EngineSetup], Engine]
    policy: Callable[[SampledPolicy], Any]
    """Makes what plays the episodes: a policy, or an agent."""
    teacher: Callable[..., Any] | None
    """A function of a ``TeacherSetup``."""
    opponent: Callable[..., Any] | None
    """A function of an ``OpponentSetup``."""
    grader: Callable[..., Any] | None
    group_reward: Callable[..., Any] | None


def load_parts(config: TrainConfig) -> RunParts:
    """Import every part that ``config`` names, register its variants, and return what a run is put together from.

    Raises:
        UsageError: A part cannot be imported, or cannot be called with what Palestra passes and the recipe's keywords.

    """
    if config.agent is not None:
        import_reference(config.agent.program)
    loaded: dict[str, Any] = {}
    for role, value in _hooks(config):
        loaded[role.key] = _tool(value) if role is VARIANT_TOOL else role.load(value)
    register_variants(config.variants)
    return RunParts(
        engine=loaded[ENGINE.key],
        policy=loaded[POLICY.key],
        teacher=loaded.get(TEACHER.key),
        opponent=loaded.get(OPPONENT.key),
        grader=loaded.get(GRADER.key),
        group_reward=loaded.get(GROUP_REWARD.key),
    )


def references_of(config: TrainConfig) -> list[str]:
    """Return every ``module:name`` in ``config`` that does not name an environment."""
    agents = [] if config.agent is None else [config.agent.program]
    return agents + [name for role, value in _hooks(config) if is_reference(name := parse_hook(role.key, value)[0])]


def names_in_variants(config: TrainConfig) -> list[str]:
    """Return the environments that the variants of ``config`` name, and their keywords that are text, such as a grader."""
    hooks = [parse_hook("variants.ID.env", variant.env) for variant in config.variants.values()]
    return [name for use, options in hooks for name in (use, *options.values()) if isinstance(name, str)]


def _hooks(config: TrainConfig) -> Iterator[tuple[Role, Hook]]:
    """Every hook of ``config`` with its role, apart from environments."""
    yield ADVANTAGE, config.advantage.method
    yield LOSS, config.learner.loss.kind
    yield SCHEDULE, config.learner.schedule
    yield ENGINE, config.engine.kind
    yield TRANSFER, config.engine.transfer
    yield PROMPT_HISTORY, config.prompt.history
    if config.teacher is not None:
        yield TEACHER, config.teacher.kind
    if config.warm_start is not None:
        yield DEMONSTRATOR, config.warm_start.teacher
    if config.opponent is not None:
        yield OPPONENT, config.opponent.kind
    yield POLICY, config.player
    if config.horizon is not None:
        yield from ((HORIZON, value) for value in (config.horizon.default, *config.horizon.environments.values()))
    play = config.play
    for role, value in ((GRADER, play.grader), (GROUP_REWARD, play.group_reward), (DIFFICULTY, play.difficulty)):
        if value:
            yield role, value
    yield from ((WRITER, value) for value in config.writers)
    for variant in config.variants.values():
        yield from ((VARIANT_WRAPPER, value) for value in variant.wrappers)
        yield from ((VARIANT_TOOL, value) for value in variant.tools)


# ---------------------------------------------------------------------------------------------------------------- variants


def register_variants(variants: Mapping[str, Variant]) -> None:
    """Register the environments that a recipe puts together. To register the same ones again changes nothing."""
    for id, variant in variants.items():
        use, options = parse_hook(f"variants.{id}.env", variant.env)
        base = spec(use)
        wrappers: list[Callable[[AsyncEnv], AsyncEnv]] = [_Wrap(value) for value in variant.wrappers]
        turns, attempts = options.get("max_turns", base.max_turns), prod(map(_attempts, variant.wrappers))
        if turns is not None and attempts > 1:  # the limit is that of an attempt
            wrappers.insert(0, _Wrap(hook("TurnLimit", turns=turns)))
            turns *= attempts
        register(
            id,
            base.entry,
            kwargs={**base.kwargs, **options},
            max_turns=turns,
            tags=base.tags,
            needs=base.needs,
            wrappers=(*base.wrappers, *wrappers, *([_Lend(variant.tools)] if variant.tools else [])),
            description=base.description,
            rows=base.rows,
        )


def _attempts(wrapper: Hook) -> int:
    use, options = parse_hook(VARIANT_WRAPPER.key, wrapper)
    if use not in (Attempts.__name__, "palestra.wrappers:Attempts"):
        return 1
    number = options.get("n", ATTEMPTS)
    return number if isinstance(number, int) else 1  # the wrapper refuses what is no number


@dataclass(frozen=True)
class _Wrap:
    """A wrapper as the recipe names it. Unlike a closure it can be compared and pickled."""

    value: Hook

    def __call__(self, env: AsyncEnv) -> AsyncEnv:
        use, options = parse_hook(VARIANT_WRAPPER.key, self.value)
        return named_wrapper(use, **options)(env)


@dataclass(frozen=True)
class _Lend:
    """``UseTools`` with the tools that the recipe names."""

    values: tuple[Hook, ...]

    def __call__(self, env: AsyncEnv) -> AsyncEnv:
        return lend([_tool(value) for value in self.values])(env)


def _tool(value: Hook) -> Tool:
    use, options = parse_hook(VARIANT_TOOL.key, value)
    return named_tool(use, **options)
