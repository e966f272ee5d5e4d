# /// script
# requires-python = ">=3.11"
# dependencies = ["palestra[gymnasium]"]
# ///
"""Evaluate a policy on an environment of Gymnasium: ``uv run --find-links dist examples/gymnasium_env.py``.

The policy here is a function of text that follows a fixed rule. Put ``ChatPolicy`` or ``hf:MODEL`` in its place to evaluate a
model.
"""

import re

import palestra

ENV = "gymnasium:CliffWalking-v1?render_mode=ansi&names=up,right,down,left&max_episode_steps=50&solved_at=-13"


def along_the_cliff(text: str) -> str:
    """Go up, then right along the cliff, then down."""
    rows = [line.split() for line in text.splitlines() if re.fullmatch(r"[oxCT ]+", line)]
    row, column = next((at, line.index("x")) for at, line in enumerate(rows) if "x" in line)
    move = "up" if row == 3 and column == 0 else "right" if column < 11 else "down"
    return f"I stand in row {row}, column {column}: \\boxed{{{move}}}"


def main() -> None:
    """Evaluate both policies on the same tasks, and print one line for each."""
    for policy in ("random", along_the_cliff):
        report = palestra.evaluate(ENV, policy, n=20)
        score, success = report.suite.score, report.suite.success
        print(f"{report.policy}: score {score.mean:.1f}, solved {success.mean:.2f}")


if __name__ == "__main__":
    main()
