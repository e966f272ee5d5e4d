from palestra import evaluate
from palestra.evaluation import compare, comparison_text, read_episodes, report_markdown, task_scores


def always_five(text: str) -> str:
    return "\\boxed{5}"


games = ["game:GuessTheNumber-v0-easy", "game:Mastermind-v0-easy"]
report = evaluate(games, always_five, n=20, group_size=2, out="runs/five")
evaluate(games, "random", n=20, group_size=2, out="runs/random")
print(report_markdown(report))

five, chance = (task_scores(read_episodes(f"runs/{name}")) for name in ("five", "random"))
print(comparison_text(compare(five, chance)))
