"""Palestra's episodes as trajectories of ART (``openpipe-art``). Tried with ART 0.5.18.

Palestra plays, with any engine that samples from ART's model. ``rollout`` is what ART's ``TrajectoryGroup`` collects::

    groups = await art.gather_trajectory_groups(
        (art.TrajectoryGroup(rollout(task, policy, member=at) for at in range(8)) for task in tasks), max_exceptions=10
    )
    await model.train(groups)

ART renders the messages again and puts the sampled ids and log-probs in place of the assistant's text. The result equals what
the model saw only if the chat template leaves earlier messages unchanged: pass ``tokenizer`` to have every trajectory checked
with ART's own tokenization. A failed episode raises ``EpisodeFailed``, which ART counts among the exceptions of the group; it
has no reward. ART takes one history per trajectory from us, so an episode of several segments raises ``UsageError``.
"""

from typing import Any

from palestra.bridges.versions import framework
from palestra.errors import PalestraError, UsageError
from palestra.rollouts.options import AnyPolicy
from palestra.rollouts.verbs import play
from palestra.trajectory import Finish, Task, Trajectory, flatten, observed, opening_of, text_of

__all__ = ["EpisodeFailed", "rollout", "to_art"]


class EpisodeFailed(PalestraError):
    """The episode failed, so that it has no reward."""


async def rollout(task: Task, policy: AnyPolicy, *, tokenizer: Any = None, **options: Any) -> Any:
    """Play one episode and return it as an ``art.Trajectory``.

    Args:
        task: The task to play.
        policy: A policy that samples, such as ``SampledPolicy`` over ART's inference server.
        tokenizer: See ``to_art``.
        options: The keywords of ``palestra.play``, such as ``member``, ``deadline`` and ``max_turns``.

    Raises:
        EpisodeFailed: The episode failed. ``gather_trajectory_groups(max_exceptions=…)`` says how many may.
    """
    _art()
    return to_art(await play(task, policy, **options), tokenizer=tokenizer)


def to_art(played: Trajectory, *, tokenizer: Any = None) -> Any:
    """Return a trajectory as an ``art.Trajectory``: user messages, and one ``Choice`` with ids and log-probs per turn.

    Args:
        played: The trajectory.
        tokenizer: If given, ART tokenizes the result, and ids or masks that differ from the sampled ones raise ``UsageError``.
    """
    art = _art()
    if played.stop.failed:
        raise EpisodeFailed(f'an episode of "{played.task.env}" failed: {played.failures[-1].message}')
    if len(played.segments) != 1:
        raise UsageError(
            f'an episode of "{played.task.env}" has {len(played.segments)} segments, and ART takes one history: use a renderer '
            f"with append_only=True and a history that keeps all messages"
        )
    made = art.Trajectory(
        messages_and_choices=_history(played),
        reward=played.reward,
        metrics={"turns": len(played.turns), **({} if played.success is None else {"success": played.success})},
        metadata={"env": played.task.env, "seed": played.task.seed, "stop": str(played.stop)},
        initial_policy_version=min(span.version for span in played.segments[0].spans),
        final_policy_version=max(span.version for span in played.segments[0].spans),
    ).finish()
    if tokenizer is not None:
        _check(made, played, tokenizer)
    return made


def _history(played: Trajectory) -> list[Any]:
    (flat,) = flatten(played)
    history: list[Any] = [{"role": message.role, "content": text_of(message.content)} for message in opening_of(played.info)]
    for number, turn in enumerate(played.turns):
        message = observed(turn.observation, played.turns[number - 1].info if number else played.info)
        history.append({"role": message.role, "content": text_of(message.content)})
        mine = flat.turns == number
        history.append(_choice(turn.completion, flat.response[mine].tolist(), flat.logprobs[mine].tolist()))
    return history


def _choice(completion: Any, ids: list[int], logprobs: list[float]) -> Any:
    from openai.types.chat.chat_completion import Choice

    content: list[dict[str, Any]] = [
        {"token": f"token_id:{token_id}", "logprob": logprob, "bytes": None, "top_logprobs": []}
        for token_id, logprob in zip(ids, logprobs, strict=True)
    ]
    return Choice.model_validate(
        {
            "index": 0,
            "finish_reason": "length" if completion.finish is Finish.LENGTH else "stop",
            "message": {"role": "assistant", "content": completion.text},
            "logprobs": {"content": content, "refusal": None} if content else None,
        }
    )


def _check(made: Any, played: Trajectory, tokenizer: Any) -> None:
    tokenize = framework("art", "art.preprocessing.tokenize", "tokenize_trajectory").tokenize_trajectory
    history = framework("art", "art.trajectories", "History").History(messages_and_choices=made.messages_and_choices)
    result = tokenize(tokenizer, None, history, 0.0, False, made)
    (segment,) = played.segments
    if result is None or result.token_ids != segment.ids.tolist() or result.assistant_mask != segment.mask.astype(int).tolist():
        raise UsageError(
            f'ART renders an episode of "{played.task.env}" to other tokens than the model saw: its chat template does not '
            f"append. Use a template that keeps all earlier messages as they are"
        )


def _art() -> Any:
    return framework("art", "art", "Trajectory")
