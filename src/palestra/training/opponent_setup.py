"""What an opponent is built from, and the built-in one: the model with earlier weights. ``opponents`` has how they play."""

from pathlib import Path
from typing import NamedTuple

import transformers

from palestra.core import Policy
from palestra.errors import UsageError
from palestra.inference.choice import frozen_engine
from palestra.inference.servers.publishing import PublishedWeights
from palestra.policies import as_policy
from palestra.policies.sampled import SampledPolicy
from palestra.recipes.config import TrainConfig
from palestra.recipes.play import POLICY
from palestra.training.opponents import OPPONENTS, PastModel
from palestra.training.parts import engine_setup

__all__ = ["OpponentSetup", "past_opponent"]


class OpponentSetup(NamedTuple):
    """What an opponent is built from."""

    config: TrainConfig
    model: str
    """The model folder, or its name on the hub, that the first step starts from."""
    folder: Path
    """The run folder."""
    sampled: SampledPolicy
    """Samples from the model. Its renderer and its sampling settings suit an opponent with the same tokens."""


def past_opponent(setup: OpponentSetup) -> Policy:
    """The model with the weights of an earlier step, sampled by an engine of its own."""
    config, settings, model = setup.config, setup.config.opponent, setup.sampled
    assert settings is not None
    tokenizer = transformers.AutoTokenizer.from_pretrained(setup.model)
    engine = frozen_engine(engine_setup(config, setup.model, setup.folder, tokenizer), settings.urls)
    sampled = SampledPolicy(model.renderer, engine, model.sampling, history=model.history, shots=model.shots)
    most = settings.kept(config.keep * config.checkpoint_every)
    kept = PublishedWeights(str(setup.folder / OPPONENTS), setup.model, config.engine.dtype, most)
    policy = as_policy(POLICY.load(config.player)(sampled))
    if hasattr(policy, "end_episode"):
        raise UsageError('opponent.kind = "past" cannot play with a policy that has end_episode, such as an agent')
    return PastModel(policy, engine, kept, settings, config.seed)
