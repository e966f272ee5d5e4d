import json
from pathlib import Path

import palestra

rows = [{"prompt": f"Ann has {n} apples and buys {n + 2} more. How many has she?", "answer": 2 * n + 2} for n in range(500)]
Path("questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

questions = "data:questions.jsonl?grader=number&question=prompt"


def always_ten(text: str) -> str:
    return "\\boxed{10}"


report = palestra.evaluate(questions, always_ten, n=1000, out="runs/ten")  # plays each of the 500 rows once
print(report.suite.score)


def near(reply: str, row: dict) -> float:
    """Grade a reply from 0 to 1: the closer, the better."""
    said = palestra.grading.last_boxed(reply) or "0"
    return max(0.0, 1.0 - abs(int(said) - row["answer"]) / row["answer"]) if said.isdigit() else 0.0


with palestra.make("data:questions.jsonl", question="prompt", grader=near) as env:
    observation, info = env.reset(seed=0)
    print(observation, env.step("\\boxed{500}").reward)
