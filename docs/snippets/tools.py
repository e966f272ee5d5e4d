import palestra
from palestra.tools.python import PythonTool
from palestra.wrappers import ToolRules


@palestra.tool
async def halve(low: int, high: int) -> int:
    """The number in the middle of a range."""
    return (low + high) // 2


game = palestra.make("game:GuessTheNumber-v0")
env = palestra.UseTools(game, [halve, PythonTool()], ToolRules(budget=5))
observation, info = env.reset(seed=0)  # begins with a description of the tools

call = '<tool_call>{"name": "halve", "arguments": {"low": 1, "high": 50}}</tool_call>'
code = '<tool_call>{"name": "python", "arguments": {"code": "print(2 ** 10)"}}</tool_call>'
observation, reward, terminated, truncated, info = env.step(call + code)
print(observation)  # what both answered; the game has not moved
print(info["tools"]["totals"])

observation, reward, terminated, truncated, info = env.step("\\boxed{25}")  # no call: a move
env.close()
