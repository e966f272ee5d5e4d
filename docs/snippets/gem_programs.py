from functools import partial

import palestra as gem
from palestra.bridges.gem_programs import EpisodeTrackingWrapper, PythonCodeTool, ToolEnvWrapper

tools = partial(ToolEnvWrapper, tools=[PythonCodeTool(timeout=5)], max_tool_uses=3)
env = gem.make_vec(["game:GuessTheNumber-v0-easy"] * 4, wrappers=[tools, EpisodeTrackingWrapper], async_mode=True)
observations, infos = env.reset(seed=0)
observations, rewards, terminated, truncated, infos = env.step(["<python>print(6 * 7)</python>"] * env.num_envs)
assert [info["tool_use_counter"] for info in infos] == [1, 1, 1, 1]
env.close()
