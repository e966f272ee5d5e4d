import asyncio

from palestra.grading.code import CodeJudge, FunctionCase, ProgramCase
from palestra.sandbox import Bubblewrap

HONEST = "def add(a, b):\n    return a + b\n"
HACK = "class Equal(int):\n    __eq__ = lambda *a: True\ndef add(a, b):\n    return Equal()\n"


async def main() -> None:
    async with Bubblewrap() as sandbox:
        judge = CodeJudge(sandbox=sandbox, wall_seconds=5.0)
        cases = [FunctionCase((1, 2), 3), FunctionCase(("a", "b"), "ab")]
        print(await judge.function(HONEST, "add", cases))
        print(await judge.function(HACK, "add", cases))
        print(await judge.program("print(int(input()) * 2)", [ProgramCase("21\n", "42\n")]))
        print(await judge.asserts(HONEST, "add", "def check(candidate):\n    assert candidate(1, 2) == 3\n"))


asyncio.run(main())
