import resource
import subprocess
import sys

import pytest

from palestra.foundation.resources.descriptors import raise_descriptor_limit

INFINITY = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("soft", "hard", "largest", "expected"),
    [
        (1024, 4096, INFINITY, 4096),
        (4096, 4096, INFINITY, 4096),
        (1024, INFINITY, 2**20, 2**20),
        (1024, INFINITY, 10_240, 10_240),
        (INFINITY, INFINITY, 2**20, INFINITY),
        (1024, INFINITY, 1024, 1024),
    ],
)
def test_the_soft_limit_goes_as_far_as_the_system_allows(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, largest: int, expected: int
) -> None:
    now = [(soft, hard)]

    def set_limit(_which: int, limits: tuple[int, int]) -> None:
        if largest != INFINITY and (limits[0] == INFINITY or limits[0] > largest):
            raise ValueError("not allowed to raise maximum limit")
        now[0] = limits

    monkeypatch.setattr(resource, "getrlimit", lambda _which: now[0])
    monkeypatch.setattr(resource, "setrlimit", set_limit)
    assert raise_descriptor_limit() == expected
    assert now[0] == (expected, hard)


COMMAND = "from palestra.cli import main\ntry: main(['show', 'math:Sums'])\nexcept SystemExit: pass"
ROLLOUT = "from palestra.rollouts import collect\ncollect('math:Sums', 'oracle', n=1)"


@pytest.mark.slow
@pytest.mark.parametrize("code", [COMMAND, ROLLOUT], ids=["command", "rollout"])
def test_the_command_and_rollout_raise_the_soft_limit(code: str) -> None:
    lower = "import resource as r; r.setrlimit(r.RLIMIT_NOFILE, (256, r.getrlimit(r.RLIMIT_NOFILE)[1]))\n"
    code = f"{lower}{code}\nprint(*r.getrlimit(r.RLIMIT_NOFILE))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    soft, hard = ended.stdout.splitlines()[-1].split()
    assert soft == hard
