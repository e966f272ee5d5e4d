from pathlib import Path

import palestra
from palestra.worlds.harbor.scaffold import new_task

FENCE = "`" * 3


def block(command: str) -> str:
    return f"{FENCE}bash\n{command}\n{FENCE}"


new_task(Path("tasks/count-lines"))

with palestra.make("harbor:tasks?base=host#count-lines") as env:
    observation, info = env.reset(seed=0)
    print(observation)
    observation, reward, terminated, truncated, info = env.step(block("wc -l < data.txt > answer.txt"))
    observation, reward, terminated, truncated, info = env.step(block("submit"))
    print(reward, info["success"])
    assert reward == 1.0
