"""Palestra's environments in TRL's ``GRPOTrainer``, in two ways. Tried with TRL 1.16.

``rollout_func`` lets Palestra play the episodes, with TRL's model and TRL's tokenizer. TRL receives the ids that were sampled,
their log-probs and the mask. Of a row of the data set, TRL passes the prompt and nothing else, so ``task_rows`` writes the task
as JSON into the prompt. A failed episode has the reward ``None``, which TRL leaves out of the mean of its group, and a mask of
zeros: none of its tokens is in the loss, also not in the KL term that ``beta`` adds.

``environment_factory`` lets TRL run the loop, with the environment's actions as calls of one tool, ``act``. The environment
cannot end TRL's loop: the model writes one more turn after the end, and TRL trains on it. Prefer ``rollout_func``.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from palestra.adapters.loop_thread import run_anywhere
from palestra.bridges.leases import LentEnv, only_text
from palestra.bridges.rows import task_of, task_text
from palestra.bridges.sequences import appending_renderer, note_failures, only_sequence
from palestra.bridges.versions import called_by, reading
from palestra.core import Engine, Renderer, Sampling
from palestra.foundation.encoding import floats, ints
from palestra.policies.sampled import SampledPolicy
from palestra.rollouts import EpisodeKey, EpisodeRunner, RolloutOptions
from palestra.trajectory import FlatSegment, Task, Trajectory, text_of

__all__ = ["environment_factory", "reward", "rollout_func", "task_rows"]


def task_rows(tasks: Iterable[Task]) -> list[dict[str, Any]]:
    """Return the rows of a data set for ``rollout_func``: ``Dataset.from_list(task_rows(tasks))``."""
    return [{"prompt": [{"role": "user", "content": task_text(task)}]} for task in tasks]


def reward(completions: Sequence[Any], palestra_reward: Sequence[float | None], **_: Any) -> list[float | None]:
    """The reward function to pass to ``GRPOTrainer`` beside ``rollout_func``: the rewards of the environment."""
    return list(palestra_reward)


def rollout_func(
    *,
    max_tokens: int = 512,
    options: RolloutOptions | None = None,
    engine: Callable[[Any], Engine] | None = None,
    renderer: Callable[[Any], Renderer] | None = None,
) -> Callable[[list[Any], Any], dict[str, list[Any]]]:
    """Return the ``rollout_func`` of a ``GRPOTrainer``: it plays one episode per prompt.

    Args:
        max_tokens: The token limit of one turn.
        options: Deadline, turn limit, retries, wrappers and tools of the episodes.
        engine: Makes an engine of the trainer, anew for every batch of prompts; by default transformers on the trainer's model.
        renderer: Makes a renderer of the tokenizer; by default one that keeps all sampled text in the context, because TRL
            takes one sequence per episode.

    Raises:
        UsageError: While training, if an episode has several segments. TRL takes one sequence per episode.

    Example::

        trainer = GRPOTrainer(model, reward_funcs=reward, rollout_func=rollout_func(max_tokens=64), …)
    """
    settings = options or RolloutOptions()

    @called_by("trl")
    def play(prompts: list[Any], trainer: Any) -> dict[str, list[Any]]:
        tasks = [task_of(prompt[-1]["content"]) for prompt in prompts]
        with reading("trl"):
            model, tokenizer = trainer.accelerator.unwrap_model(trainer.model), trainer.processing_class
            training, step, size = model.training, trainer.state.global_step, trainer.num_generations
            # Every process has its share of the prompts, and a group may be spread over several of them.
            before = trainer.accelerator.process_index * len(tasks)
            sampling = Sampling(
                max_tokens=max_tokens,
                temperature=trainer.temperature,
                top_p=trainer.args.top_p or 1.0,
                top_k=trainer.args.top_k or 0,
            )
        chosen = (renderer or appending_renderer)(tokenizer)
        try:
            policy = SampledPolicy(chosen, (engine or _on_the_model)(trainer), sampling)
            keys = [EpisodeKey(task, step, at // size, at % size) for at, task in enumerate(tasks, start=before)]
            played = run_anywhere(_play(policy, settings, keys))
            note_failures(played, "TRL")
        finally:
            model.train(training)  # the engine put the model into evaluation mode, and TRL reads model.training
        return _columns(played, chosen)

    return play


def _on_the_model(trainer: Any) -> Engine:
    from palestra.inference.engines.hf import HFEngine

    # A new engine per call: what an old one keeps was computed with older weights.
    return HFEngine(trainer.accelerator.unwrap_model(trainer.model))


async def _play(policy: SampledPolicy, options: RolloutOptions, keys: Sequence[EpisodeKey]) -> list[Trajectory]:
    try:
        async with EpisodeRunner(policy, options) as runner:
            return [trajectory for (trajectory,) in await asyncio.gather(*map(runner.play, keys))]
    finally:
        await policy.engine.close()


def _columns(played: Sequence[Trajectory], renderer: Renderer) -> dict[str, list[Any]]:
    flats = [_one_sequence(trajectory, renderer) for trajectory in played]
    return {
        "prompt_ids": [flat.prompt.tolist() for flat in flats],
        "completion_ids": [flat.response.tolist() for flat in flats],
        "logprobs": [flat.logprobs.tolist() for flat in flats],
        "env_mask": [
            (flat.mask & (not trajectory.stop.failed)).tolist() for trajectory, flat in zip(played, flats, strict=True)
        ],
        "palestra_reward": [None if trajectory.stop.failed else trajectory.reward for trajectory in played],
        "palestra_turns": [len(trajectory.turns) for trajectory in played],
    }


def _one_sequence(trajectory: Trajectory, renderer: Renderer) -> FlatSegment:
    if trajectory.segments:
        return only_sequence(trajectory, "TRL")
    # Nothing was sampled, because the environment or the first call failed. One masked token stands for the episode.
    stop, none, unknown = ints([renderer.stop_ids[0]]), floats([0.0]), ints([-1])
    return FlatSegment(stop, stop, ints([0]), none, none, unknown, unknown)


def environment_factory(id: str, **kwargs: Any) -> type:
    """Return the ``environment_factory`` of a ``GRPOTrainer`` for the environment ``id``.

    A row of the data set may have a column ``seed``. TRL never closes an environment: it is closed when TRL drops the object.
    If the environment fails, TRL shows the error to the model and continues; the reward is ``None``, which TRL leaves out.
    """

    class PalestraEnvironment:
        def __init__(self) -> None:
            self._env = LentEnv(id, **kwargs)
            self._reward = 0.0
            self._over, self._failed = True, False

        def reset(self, seed: int | None = None, **_: Any) -> str:
            shown = only_text(*self._env.reset(seed=seed))
            self._reward, self._over, self._failed = 0.0, False, False
            return shown

        def act(self, action: str) -> str:
            """Take the next action in the environment.

            Args:
                action: The action, in the form that the environment asks for.

            Returns:
                The environment's answer.
            """
            if self._over:
                return "The episode is over."
            try:
                step = self._env.step(action)
            except Exception:
                self._over = self._failed = True  # TRL shows the error to the model and continues
                raise
            self._reward += step.reward
            self._over = step.terminated or step.truncated
            return text_of(step.observation)

        def get_reward(self) -> float | None:
            return None if self._failed else self._reward

    return PalestraEnvironment
