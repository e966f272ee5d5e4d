"""Palestra's environments in verifiers, and so in prime-rl: taskset, environment and harness. Tried with verifiers 0.4.0.

verifiers finds the three classes under the id ``palestra-verifiers``, the module that this package installs for it::

    vf-eval palestra-verifiers --env.taskset.env game:GuessTheNumber-v0-easy -m MODEL

The environment opens the conversation as its user. The harness calls the model in the process of verifiers, through the
interception server. The harness ``null`` of verifiers works, too; it starts a process per turn. With the train client, every
branch of the trace is a sequence of token ids. A history that was rewritten becomes another branch.

A reply that was cut is not a move: it ends the episode. So does a full context: the trace is truncated by ``max_total_tokens``,
and the episode keeps its rewards. If the environment fails, verifiers records the error in the trace and
the episode, without a reward. verifiers has one reward per episode: the sum over the turns.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import msgspec

from palestra.bridges.leases import LentEnv, only_text
from palestra.bridges.versions import framework
from palestra.rollouts.supply import tasks_of
from palestra.trajectory import Task, text_of

__all__ = ["Plugin", "play_in", "plugin"]


class Plugin(NamedTuple):
    """The classes that verifiers looks for in a module's ``__all__``."""

    taskset: type
    env: type
    harness: type


async def play_in(interaction: Any, task: Task) -> tuple[float, dict[str, float]]:
    """Play ``task`` as the user of an interaction of verifiers. Returns the reward and the metrics."""
    env = LentEnv(task.env)
    total, turns, metrics = 0.0, 0, {}
    try:
        observation, info = await env.reset_async(task=task)
        shown, over = only_text(observation, info), False
        while not over:
            segment = await interaction.turn(shown)
            _note_overflow(interaction.trace)
            if segment.terminated or interaction.trace.is_truncated:
                break
            # Not last_reply: it strips spaces that the model wrote.
            reply = interaction.trace.assistant_messages[-1].content or ""
            observation, reward, terminated, truncated, info = await env.step_async(reply)
            shown, over, total, turns = text_of(observation), terminated or truncated, total + reward, turns + 1
            solved = {"success": float(info["success"])} if "success" in info else {}
            metrics = {**solved, **info.get("metrics", {})}
    finally:
        await env.close_async()
    return total, {"turns": float(turns), **metrics}


def _note_overflow(trace: Any) -> None:
    """Record that the context is full. A harness ends its turn without an error then; verifiers keeps only the failed call."""
    if not trace.errors and trace.stop_condition is None and trace.calls and trace.calls[-1].error is not None:
        trace.stop("max_total_tokens")


@cache
def plugin() -> Plugin:
    """Return the classes for verifiers. ``palestra_verifiers`` exports them."""
    used = "AgentConfig Env EnvConfig Harness HarnessConfig ProgramResult State Task TaskConfig TaskData Taskset TasksetConfig"
    vf = framework("verifiers", "verifiers.v1", *used.split())

    class PalestraConfig(vf.TasksetConfig):  # type: ignore[name-defined]
        env: str = "game:GuessTheNumber-v0-easy"
        tasks: int = 100
        seed: int = 0

    class PalestraData(vf.TaskData):  # type: ignore[name-defined]
        palestra: dict[str, Any]

    class PalestraTask(vf.Task[PalestraData, vf.State, vf.TaskConfig]):  # type: ignore[name-defined]
        pass

    class PalestraTaskset(vf.Taskset[PalestraTask, PalestraConfig]):  # type: ignore[name-defined]
        def load(self) -> Iterator[PalestraTask]:
            tasks, _ = tasks_of(self.config.env, self.config.tasks, self.config.seed)
            for number, task in enumerate(tasks):
                data = PalestraData(name=f"{task.env}#{number}", palestra=msgspec.to_builtins(task))
                yield PalestraTask(data, self.config.task)

    class PalestraEnvConfig(vf.EnvConfig):  # type: ignore[name-defined]
        player: vf.AgentConfig = vf.AgentConfig(runtime={"type": "subprocess"})  # type: ignore[name-defined]

    class PalestraEnv(vf.Env[PalestraEnvConfig]):  # type: ignore[name-defined]
        async def run(self, task: Any, agents: Any) -> None:
            async with agents.player.interaction(task) as interaction:
                reward, metrics = await play_in(interaction, msgspec.convert(task.data.palestra, Task))
            if not interaction.trace.errors:
                interaction.trace.record_reward("palestra", reward)
                interaction.trace.record_metrics(metrics)

    return Plugin(PalestraTaskset, PalestraEnv, _harness(vf))


def _harness(vf: Any) -> type:
    import aiohttp

    chat = framework("verifiers", "verifiers.v1.dialects.chat", "message_to_wire")
    limits = framework("verifiers", "verifiers.v1.harnesses.utils.compaction", "CONTEXT_OVERFLOW_MARKERS")

    class PalestraHarness(vf.Harness[vf.HarnessConfig]):
        """One call of the model per turn, in this process."""

        APPENDS_SYSTEM_PROMPT = SUPPORTS_RESUME = True
        EXECUTES_CODE = NEEDS_CONTAINER = False

        async def launch(self, ctx: Any, trace: Any, runtime: Any, endpoint: str, secret: str, *rest: Any) -> Any:
            _, data = rest  # the URLs of tools, of which our tasks have none; and the task with the conversation
            system, messages = self.resolve_prompt(data)
            wire = [{"role": "system", "content": system}] if system else []
            wire += [chat.message_to_wire(message) for message in messages]
            url, body = f"{endpoint}/chat/completions", {"model": ctx.model, "messages": wire}
            session = aiohttp.ClientSession(headers={"Authorization": f"Bearer {secret}"}, timeout=aiohttp.ClientTimeout(None))
            try:
                async with session, session.post(url, json=body) as answer:
                    text = await answer.text()
            except aiohttp.ClientError as error:
                return vf.ProgramResult(exit_code=1, stdout="", stderr=str(error))
            # If the call failed, verifiers has recorded why: a limit, or an error of the server. A full context is no error.
            full = answer.status in (400, 413) and any(words in text.casefold() for words in limits.CONTEXT_OVERFLOW_MARKERS)
            return vf.ProgramResult(exit_code=0 if answer.ok or full else 1, stdout="", stderr="" if answer.ok else text)

    return PalestraHarness
