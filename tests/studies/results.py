"""Made-up results of runs."""

from palestra.studies.results import Curves, Made, RunResult


def result(environment: str = "guess", arm: str = "ReBN", seed: int = 0, *, after: float = 1.0, tasks: int = 20) -> RunResult:
    made = Made("2026-11-16", "a machine", "abc", {}, seconds=3.0, cpu_seconds=4.0, warm_start_seconds=1.0)
    outcomes = {"success": [0.0] * tasks, "turns": [4.0] * tasks, "reward": [0.0] * tasks}
    later = {"success": [after] * tasks, "turns": [3.0] * tasks, "reward": [after] * tasks}
    curves: Curves = {"success": [0.0, 0.5, 1.0], "entropy": [1.0, 0.5, 0.2]}
    sides = {"before": outcomes, "after": later, "curves": curves, "made": made}
    return RunResult(environment, arm, seed, command="", model="tiny", overrides=[], **sides)  # type: ignore[arg-type]
