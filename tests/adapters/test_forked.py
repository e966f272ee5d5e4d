"""A forked child: it has neither the event loop of its parent nor a right to what environments of its parent hold."""

import subprocess
import sys
from pathlib import Path

import pytest

CHILD = """
import os, signal, sys
import palestra
from palestra.adapters import Blocking
from tests.test_core import AsyncDice


class Closing(AsyncDice):
    async def close(self):
        print("closed in", "the child" if child == 0 else "the parent", flush=True)


env = Blocking(Closing())
env.reset(seed=0)
vec = palestra.make_vec("tests.test_core:AsyncDice", 2)
vec.reset(seed=0)
sys.stdout.flush()
child = os.fork()
if child == 0:
    signal.alarm(60)  # a child that hangs ends all the same, and not with 0
    code = 1
    try:
        for use in (lambda: env.step("1"), env.oracle):
            try:
                use()
            except RuntimeError as error:
                assert f"the event loop of process {os.getppid()} does not run in process" in str(error), error
            else:
                raise AssertionError("the event loop of the parent answered")
        env.close()
        vec.close()
        own = Blocking(AsyncDice())
        own.reset(seed=0)
        own.close()
        code = 0
    finally:
        sys.stderr.flush()
        os._exit(code)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
env.step("1")
env.close()
vec.close()
"""


@pytest.mark.slow
def test_a_forked_child_closes_what_it_inherited_and_starts_a_loop_of_its_own() -> None:
    command = [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", CHILD]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=Path(__file__).parents[2], check=False)
    assert done.stderr == ""
    assert done.stdout == "0\nclosed in the parent\n"
