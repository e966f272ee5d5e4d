"""The tools and wrappers that programs written for GEM import, on Palestra's environments.

``import palestra as gem`` has GEM's ``make``, ``make_vec``, ``register`` and ``print_envs``. This module has the names that
such programs import from ``gem.tools`` and ``gem.wrappers``, with the arguments, rewards and counters of gem-llm 0.1.0, so
that a program changes its import lines only. A new program uses ``palestra.UseTools`` and ``palestra.wrappers``: there, errors
of a tool are told apart, budgets count calls, and the format of calls is checked.

What differs is on docs/coming-from/gem.md: Python runs in a box, and the instructions of the tools are in our own words.
"""

import re
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from palestra.adapters import Wrapper
from palestra.core import AsyncEnv, Step
from palestra.errors import UsageError
from palestra.sandbox import KilledBy, Limits, Program
from palestra.sandbox.profile import require_boxes
from palestra.sandbox.shared import shared_sandbox
from palestra.trajectory import Content, Task, text_of

__all__ = [
    "WRAPPER_FACTORY",
    "EpisodeTrackingWrapper",
    "ObservationWrapper",
    "PythonCodeTool",
    "ToolEnvWrapper",
    "get_wrapper_fns",
]

_LAST_USE = "\n\nReached the maximum number of tool use. Please output final answer directly."


class ToolUse(NamedTuple):
    """What came of a call in an action."""

    observation: str
    action: str
    """The action up to the end of the call."""
    failed: bool


class ActionTool(Protocol):
    """A tool that finds its own call in an action."""

    tool_type: str

    def instruction_string(self) -> str:
        """What the agent is told about the tool."""
        ...

    async def use(self, action: str) -> ToolUse | None:
        """Carry out the first call in ``action``; ``None`` if there is none."""
        ...


class PythonCodeTool:
    """Runs the first block ``<python>…</python>`` or fenced ``python`` of an action, in a new interpreter in a box.

    Args:
        timeout: Seconds that the code may take.
        sandbox_type: Not used: the code always runs in Palestra's box.
        keep_error_last_line: Show only the last line of what the code printed if it failed.
    """

    tool_type = "python_code"

    def __init__(self, timeout: float = 5, sandbox_type: str = "", keep_error_last_line: bool = False) -> None:
        self._limits = Limits(wall_seconds=float(timeout))
        self._last_line = keep_error_last_line
        require_boxes(self._limits)  # here, and not as a failure of every episode

    def instruction_string(self) -> str:
        """What the agent is told about the tool."""
        return (
            "You may write a complete Python program, with its imports, in <python>...</python> or in a fenced block marked "
            'python. It runs in a sandbox, and what it prints is shown to you after "Code execution result: ". Write the final '
            "answer in \\boxed{}."
        )

    async def use(self, action: str) -> ToolUse | None:
        """Run the first block in ``action``; ``None`` if there is none."""
        blocks = [re.search(form, action, re.DOTALL) for form in (r"<python>(.*?)</python>", r"```\n?python(.*?)```")]
        first = min((block for block in blocks if block), key=lambda block: block.end(), default=None)
        if first is None:
            return None
        async with shared_sandbox(self._limits) as sandbox:
            outcome = await sandbox.run(Program(code=first[1].strip(), wall_seconds=self._limits.wall_seconds))
        printed, errors = (stream.decode(errors="replace") for stream in (outcome.stdout, outcome.stderr))
        if outcome.killed_by is not None:
            timed_out = outcome.killed_by in (KilledBy.WALL_CLOCK, KilledBy.CPU_TIME)
            errors += f"\nStopped: {'it did not end in time' if timed_out else outcome.killed_by}."
        if errors:
            printed = f"{printed}\n{errors.rpartition(chr(10))[2] if self._last_line else errors}"
        observation = "Code execution result: " + printed.lstrip(" \n") + "\n"
        return ToolUse(observation, action[: first.end()], not outcome.ok)


class ToolEnvWrapper(Wrapper):
    """Gives an action with a call to the tools and any other action to the environment.

    Args:
        env: The environment.
        tools: The tools; the first that finds a call of its own and does not fail answers.
        tool_reward: Reward of each use.
        tool_success_reward: Additional reward of a use that does not fail.
        max_tool_uses: Uses per episode; after them every action goes to the environment. ``None`` means no limit.
    """

    def __init__(
        self,
        env: AsyncEnv,
        tools: Sequence[ActionTool],
        tool_reward: float = 0.0,
        tool_success_reward: float = 0.0,
        max_tool_uses: int | None = 10,
    ) -> None:
        super().__init__(env)
        self.tools, self.max_tool_uses = list(tools), max_tool_uses
        self.tool_reward, self.tool_success_reward = tool_reward, tool_success_reward
        self.tool_use_counter = self.tool_success_counter = 0

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        uses, successes = self.tool_use_counter, self.tool_success_counter
        self.tool_use_counter = self.tool_success_counter = 0
        observation, info = await self.env.reset(seed=seed, task=task)
        told = "\n".join(tool.instruction_string() for tool in self.tools)
        if len(self.tools) > 1:
            told = f"Available tools:\n{told}"
        before = {"prev_ep_tool_use_counter": uses, "prev_ep_tool_success_counter": successes}
        return f"{text_of(observation)}\n{told}", {**info, **before, **self._counted(use_tool=False)}

    async def step(self, action: str) -> Step:
        use = await self._use(action)
        if use is None:
            step = Step(*await self.env.step(action))
            return step._replace(info={**step.info, **self._counted(use_tool=True)})
        self.tool_use_counter += 1
        self.tool_success_counter += not use.failed
        reward = self.tool_reward + (0.0 if use.failed else self.tool_success_reward)
        observation = use.observation
        if self.tool_use_counter == self.max_tool_uses:
            observation += _LAST_USE
        return Step(observation, reward, False, False, {"parsed_action": use.action, **self._counted(use_tool=True)})

    async def _use(self, action: str) -> ToolUse | None:
        if self.max_tool_uses is not None and self.tool_use_counter >= self.max_tool_uses:
            return None
        use = None
        for tool in self.tools:
            use = await tool.use(action)
            if use is not None and not use.failed:
                break
        return use

    def _counted(self, *, use_tool: bool) -> dict[str, Any]:
        counters = {"tool_use_counter": self.tool_use_counter, "tool_success_counter": self.tool_success_counter}
        return {**counters, "use_tool": use_tool}


class ObservationWrapper(Wrapper):
    """Shows the whole episode in each observation, or its last turns.

    Args:
        env: The environment.
        include_action: Show the actions between the observations.
        include_chat_template: Render both as a conversation, by the chat template of ``tokenizer``.
        apply_chat_template_on_reset: Render the first observation alone by that template.
        max_history_length: Number of earlier turns that are shown; ``None`` shows all.
        tokenizer: What renders, with ``apply_chat_template``.
    """

    shared = ("tokenizer",)

    def __init__(
        self,
        env: AsyncEnv,
        include_action: bool = True,
        include_chat_template: bool = True,
        apply_chat_template_on_reset: bool = False,
        max_history_length: int | None = None,
        tokenizer: Any = None,
    ) -> None:
        super().__init__(env)
        if include_chat_template and apply_chat_template_on_reset:
            raise UsageError("include_chat_template and apply_chat_template_on_reset cannot both be true")
        if (include_chat_template or apply_chat_template_on_reset) and tokenizer is None:
            raise UsageError("a chat template needs tokenizer=")
        self.include_action, self.include_chat_template = include_action, include_chat_template
        self.apply_chat_template_on_reset, self.tokenizer = apply_chat_template_on_reset, tokenizer
        self._observations: deque[tuple[str, bool]] = deque(maxlen=max_history_length + 1 if max_history_length else None)
        """Each observation, and whether a tool gave it."""
        self._actions: deque[str] = deque(maxlen=max_history_length)

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        content, info = await self.env.reset(seed=seed, task=task)
        first = text_of(content)
        if self.apply_chat_template_on_reset:
            first = self._rendered([{"role": "user", "content": first}])
        self._actions.clear()
        self._observations.clear()
        self._observations.append((first, bool(info.get("use_tool"))))
        return self._shown(info), info

    async def step(self, action: str) -> Step:
        step = Step(*await self.env.step(action))
        self._actions.append(step.info.get("parsed_action", action))
        self._observations.append((text_of(step.observation), bool(step.info.get("use_tool"))))
        return step._replace(observation=self._shown(step.info))

    def _shown(self, info: dict[str, Any]) -> str:
        if self.include_chat_template:
            messages: list[dict[str, str]] = []
            for number, (observation, by_tool) in enumerate(self._observations):
                messages.append({"role": "tool" if by_tool else "user", "content": observation})
                if number < len(self._actions):
                    messages.append({"role": "assistant", "content": self._actions[number]})
            shown = self._rendered(messages)
        else:
            lines: list[str] = []
            for number, (observation, _) in enumerate(self._observations):
                lines.append(observation)
                if self.include_action and number < len(self._actions):
                    lines.append(self._actions[number])
            shown = "".join(line if not line or line.endswith("\n") else f"{line}\n" for line in lines)
        return f"{info.get('prefix', '')}{shown}{info.get('suffix', '')}"

    def _rendered(self, messages: list[dict[str, str]]) -> str:
        return str(self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))


class EpisodeTrackingWrapper(Wrapper):
    """Counts the steps and adds up the rewards of an episode, in ``info``. It goes outermost."""

    def __init__(self, env: AsyncEnv) -> None:
        super().__init__(env)
        self.step_counter, self.cumulative_rewards = 0, 0.0

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        before = {"prev_ep_step_counter": self.step_counter, "prev_ep_cumulative_rewards": self.cumulative_rewards}
        observation, info = await self.env.reset(seed=seed, task=task)
        self.step_counter, self.cumulative_rewards = 0, 0.0
        return observation, {**info, **before, **self._counted()}

    async def step(self, action: str) -> Step:
        step = Step(*await self.env.step(action))
        self.step_counter += 1
        self.cumulative_rewards += step.reward
        return step._replace(info={**step.info, **self._counted()})

    def _counted(self) -> dict[str, Any]:
        return {"step_counter": self.step_counter, "cumulative_rewards": self.cumulative_rewards}


def _with_python(env: Any, *, tool_reward: float = 0.0, tool_success_reward: float = 0.0, last_line: bool = False) -> Any:
    tools = [PythonCodeTool(keep_error_last_line=last_line)]  # made here: an import must not start a box
    return ToolEnvWrapper(env, tools, tool_reward, tool_success_reward, max_tool_uses=5)


WRAPPER_FACTORY: dict[str, Callable[..., Any]] = {
    "python_tool": partial(_with_python, tool_reward=0.05, tool_success_reward=0.25),
    "python_tool_no_int_reward": _with_python,
    "python_tool_no_int_reward_last_line_error": partial(_with_python, last_line=True),
    "concat": partial(ObservationWrapper, include_action=False, include_chat_template=False),
    "concat_chat": ObservationWrapper,
    "concat_with_action": partial(ObservationWrapper, include_chat_template=False),
    "concat_chat_on_reset": partial(ObservationWrapper, include_chat_template=False, apply_chat_template_on_reset=True),
    "episode_tracking": EpisodeTrackingWrapper,
}
"""Name → wrapper."""


def get_wrapper_fns(wrappers: str, tokenizer: Any = None) -> list[Callable[..., Any]]:
    """Return the wrappers that ``wrappers`` names, separated by commas, innermost first."""
    names = wrappers.split(",") if wrappers else []
    if unknown := sorted(set(names) - set(WRAPPER_FACTORY)):
        raise UsageError(f'there is no wrapper "{unknown[0]}": the names are {", ".join(WRAPPER_FACTORY)}')
    return [partial(WRAPPER_FACTORY[name], tokenizer=tokenizer) if "chat" in name else WRAPPER_FACTORY[name] for name in names]
