# /// script
# requires-python = ">=3.11"
# dependencies = ["palestra", "inspect-ai==0.3.285"]
# ///
"""A Palestra environment as a task of Inspect: ``uv run --find-links dist examples/eval_with_inspect.py``.

With a model of yours: ``inspect eval examples/eval_with_inspect.py --model openai/MODEL -T env=game:Sudoku-v0-easy``. As a
script, a mock model plays that guesses the middle of the interval, so that the file runs without a key.
"""

import re
import tempfile

import inspect_ai
from inspect_ai import Task, task
from inspect_ai.model import ModelOutput, ModelUsage, get_model

from palestra.bridges.inspect import inspect_task


@task
def palestra_env(env: str = "game:GuessTheNumber-v0-easy", n: int = 20, seed: int = 0) -> Task:
    """Play ``n`` episodes of ``env``; the scores are the mean reward and the share of solved tasks."""
    return inspect_task(env, n=n, seed=seed)


def guess(messages, tools, tool_choice, config):
    """Guess the middle of what is left."""
    low, high = 1, 10
    for message in messages[1:]:
        low = max([low, *(int(number) + 1 for number in re.findall(r"higher than (\d+)", message.text))])
        high = min([high, *(int(number) - 1 for number in re.findall(r"lower than (\d+)", message.text))])
    output = ModelOutput.from_content("mockllm/model", f"\\boxed{{{(low + max(low, high)) // 2}}}")
    output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)  # else Inspect downloads a tokenizer
    return output


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as logs:
        (log,) = inspect_ai.eval(
            palestra_env(), model=get_model("mockllm/model", custom_outputs=guess), display="none", log_dir=logs
        )
    print(log.status)
    for score in log.results.scores:
        print(score.name, {name: round(metric.value, 3) for name, metric in score.metrics.items()})
