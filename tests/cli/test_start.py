"""How soon commands start: what they load, and their CPU time."""

import os
import resource
import subprocess
import sys

import pytest

OWN = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
COMMAND = "import sys; from palestra.cli import main; sys.exit(main())"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("typed", "absent"),
    [
        (["--version"], {"typer", "numpy", "msgspec", "palestra.core"}),
        (["--help"], {"numpy", "palestra.registry", "palestra.cli.listing"}),
        (
            ["list"],
            {"aiohttp", "torch", "ray", "palestra.rollout.scheduler", "palestra.envs.deepsearch.env", "palestra.cli.show"},
        ),
        (["show", "--help"], {"aiohttp", "palestra.cli.listing", "palestra.cli.evaluate", "palestra.cli.train"}),
    ],
    ids=" ".join,
)
def test_a_command_loads_what_it_shows(typed: list[str], absent: set[str]) -> None:
    code = f"import sys; from palestra.cli import main; main({typed}); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], env=OWN, capture_output=True, text=True, check=True)
    assert not absent & set(done.stderr.split())


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "typed", "seconds"),
    [
        ("import palestra", "", 0.3),
        (COMMAND, "--version", 0.35),
        (COMMAND, "--help", 0.6),
        (COMMAND, "list", 0.8),
        (COMMAND, "show game:GuessTheNumber-v0-easy", 0.8),
    ],
)
def test_cpu_time_of_a_start(code: str, typed: str, seconds: float) -> None:
    taken = min(cpu_seconds([sys.executable, "-c", code, *typed.split()]) for _ in range(5))
    assert taken <= seconds, f"{taken:.2f} s"


def cpu_seconds(command: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env={**OWN, "PYTHONDONTWRITEBYTECODE": ""}, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
