from pathlib import Path

from palestra import collect
from palestra.interchange import read_openai, write_openai

played = collect("game:GuessTheNumber-v0-easy", "random", n=20)
solved = (trajectory for trajectory in played if trajectory.success)
print(write_openai(solved, Path("solved.jsonl")), "examples for imitation")
first = next(read_openai(Path("solved.jsonl")))
assert first.reward is None  # the format has no scores, and a missing score is not 0
