"""How soon commands start: what they load, and their CPU time."""

import os
import resource
import subprocess
import sys
from pathlib import Path

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
            {"aiohttp", "torch", "ray", "palestra.rollouts.scheduler", "palestra.worlds.deepsearch.env", "palestra.cli.show"},
        ),
        (["show", "--help"], {"aiohttp", "palestra.cli.listing", "palestra.cli.evaluate", "palestra.cli.train"}),
    ],
    ids=["version", "help", "list", "show"],
)
def test_a_command_loads_what_it_shows(typed: list[str], absent: set[str]) -> None:
    code = f"import sys; from palestra.cli import main; main({typed}); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], env=OWN, capture_output=True, text=True, check=True)
    assert not absent & set(done.stderr.split())


@pytest.mark.alone
@pytest.mark.gate
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


@pytest.mark.alone
@pytest.mark.gate
@pytest.mark.slow
def test_a_training_prints_its_first_line_within_two_seconds_in_a_pipe_too() -> None:
    command = [sys.executable, "-c", COMMAND, "train", "cpu/sums", "--dry-run"]
    with subprocess.Popen(command, env=OWN, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "cpu/sums: loading torch and transformers\n"
        ticks = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        process.kill()
    assert sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK") <= 2.0


def cpu_seconds(command: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env={**OWN, "PYTHONDONTWRITEBYTECODE": ""}, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
