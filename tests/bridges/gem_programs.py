"""Programs as users of GEM write them. Each is its import lines for GEM, those for Palestra, and a body that is the same.

``ID`` is the id of an environment. A body leaves what it saw in ``seen``, and drops its environments. ``gem_results.json``
holds what each saw with gem-llm 0.1.0 on the same tasks; ``python -m tests.bridges.gem_programs`` writes it where GEM is
installed.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

RESULTS = Path(__file__).with_name("gem_results.json")
ID = "game:GuessTheNumber-v0-easy"
OURS = "palestra.bridges.gem_programs"


class Program(NamedTuple):
    """One program."""

    gem: str
    palestra: str
    body: str


PROGRAMS = {
    "loop": Program(
        "import gem",
        "import palestra as gem",
        """
env = gem.make(ID)
observation, info = env.reset(seed=3)
while True:
    action = f"\\\\boxed{{{len(seen) + 1}}}"
    next_observation, reward, terminated, truncated, info = env.step(action)
    seen.append([observation, action, reward, terminated or truncated])
    observation = next_observation
    if terminated or truncated:
        break
drop(env)
""",
    ),
    "vector": Program(
        "import gem",
        "import palestra as gem",
        """
env = gem.make_vec([ID] * 4, async_mode=ASYNC)
observations, infos = env.reset(seed=[1, 2, 3, 4])
running = [True] * env.num_envs
for turn in range(3):
    shown = observations
    observations, rewards, terminated, truncated, infos = env.step([f"\\\\boxed{{{turn + 2 * i}}}" for i in range(4)])
    done = terminated | truncated
    for i in range(4):
        if running[i]:
            seen.append([i, shown[i], float(rewards[i]), bool(done[i])])
        running[i] = running[i] and not done[i]
drop(env)
""",
    ),
    "tools": Program(
        "import gem\nfrom gem.tools.python_code_tool import PythonCodeTool\n"
        "from gem.tools.tool_env_wrapper import ToolEnvWrapper",
        f"import palestra as gem\nfrom {OURS} import PythonCodeTool\nfrom {OURS} import ToolEnvWrapper",
        """
tool = PythonCodeTool(timeout=20)
env = ToolEnvWrapper(gem.make(ID), tools=[tool], tool_reward=0.05, tool_success_reward=0.25, max_tool_uses=3)
observation, info = env.reset(seed=1)
seen.append([info["tool_use_counter"], info["use_tool"]])
for action in ACTIONS:
    observation, reward, terminated, truncated, info = env.step(action)
    seen.append([observation, reward, terminated or truncated, info["tool_use_counter"], info["tool_success_counter"]])
    if terminated or truncated:
        break
drop(env)
""",
    ),
    "wrappers": Program(
        "import gem\nfrom gem.wrappers.wrapper_factory import get_wrapper_fns",
        f"import palestra as gem\nfrom {OURS} import get_wrapper_fns",
        """
for names in ("concat", "concat_with_action", "concat_with_action,episode_tracking", "episode_tracking"):
    env = gem.make(ID)
    for wrap in get_wrapper_fns(names):
        env = wrap(env)
    observation, info = env.reset(seed=7)
    seen.append(observation)
    for action in ("\\\\boxed{1}", "I say \\\\boxed{2}", "\\\\boxed{1}"):
        observation, reward, terminated, truncated, info = env.step(action)
        seen.append([observation, reward, info.get("step_counter"), info.get("cumulative_rewards")])
        if terminated or truncated:
            break
    drop(env)
""",
    ),
    "evaluation": Program(
        "from functools import partial\nimport gem\nfrom gem.tools.python_code_tool import PythonCodeTool\n"
        "from gem.tools.tool_env_wrapper import ToolEnvWrapper\n"
        "from gem.wrappers.episode_tracking_wrapper import EpisodeTrackingWrapper",
        f"from functools import partial\nimport palestra as gem\nfrom {OURS} import PythonCodeTool, ToolEnvWrapper, "
        "EpisodeTrackingWrapper",
        """
tool = PythonCodeTool(timeout=20)
wrappers = [partial(ToolEnvWrapper, tools=[tool], max_tool_uses=1), EpisodeTrackingWrapper]
env = gem.make_vec([ID] * 3, wrappers=wrappers, async_mode=False)
obs, _ = env.reset(seed=[1, 2, 3])
rewards, lengths, uses = [], [], []
actions = ["<python>print(1)</python>", "nothing at all"]
for turn in range(4):
    obs, reward, terminated, truncated, info = env.step([actions[turn % 2]] * env.num_envs)
    done = terminated | truncated
    for i in range(env.num_envs):
        if done[i]:
            rewards.append(info[i]["prev_ep_cumulative_rewards"])
            lengths.append(info[i]["prev_ep_step_counter"])
            uses.append(info[i]["prev_ep_tool_use_counter"])
seen.extend([rewards, lengths, uses])
drop(env)
""",
    ),
}

ACTIONS = [
    "<python>print(6 * 7)</python> and more",
    "```python\nprint('fenced')\n```",
    "<python>raise SystemExit(1)</python>",
    "<python>print('not run any more')</python> \\boxed{1}",
    "no answer here",
]


def drop(env: Any) -> None:
    """Close ``env``, if it can be closed: GEM's vectors and some of its wrappers cannot."""
    if hasattr(env, "close"):
        env.close()


def run(lines: str, body: str, id: str, *, asynchronous: bool = False) -> list[Any]:
    """Run a program and return what it saw."""
    names: dict[str, Any] = {"seen": [], "ID": id, "ACTIONS": ACTIONS, "ASYNC": asynchronous, "drop": drop}
    exec(f"{lines}\n{body}", names)  # noqa: S102
    found: list[Any] = names["seen"]
    return found


def with_gem(name: str, *, asynchronous: bool = False) -> list[Any]:
    """Run a program with GEM itself, on Palestra's environments: then only GEM's own code differs."""
    from palestra.bridges.gem import register_in_gem

    register_in_gem(f"{ID}*")
    program = PROGRAMS[name]
    return run(program.gem, program.body, f"palestra:{ID}", asynchronous=asynchronous)


def with_palestra(name: str, *, asynchronous: bool = False) -> list[Any]:
    """Run a program with the import lines of Palestra."""
    program = PROGRAMS[name]
    return run(program.palestra, program.body, ID, asynchronous=asynchronous)


if __name__ == "__main__":
    RESULTS.write_text(json.dumps({name: with_gem(name) for name in PROGRAMS}, indent=1) + "\n")
