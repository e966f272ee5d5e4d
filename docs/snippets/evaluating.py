from palestra import evaluate
from palestra.evaluation import compare_runs, comparison_text, report_markdown


def always_five(text: str) -> str:
    return "\\boxed{5}"


games = ["game:GuessTheNumber-v0-easy", "game:Mastermind-v0-easy"]
report = evaluate(games, always_five, n=20, group_size=2, out="runs/five")
evaluate(games, "random", n=20, group_size=2, out="runs/random")
print(report_markdown(report))

print(comparison_text(compare_runs("runs/five", "runs/random")))
