from palestra.evaluation.learnability import ProbeAim
from palestra.evaluation.probing import probe, probe_markdown


def always_five(text: str) -> str:
    return "\\boxed{5}"


found = probe("game:GuessTheNumber-v0-easy", always_five, out="runs/probe", group_size=4, aim=ProbeAim(groups=32, held_out=200))
print(probe_markdown(found))
assert found.verdict == "no", "a function that always gives the same answer has no spread of rewards"
