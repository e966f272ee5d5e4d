import asyncio

from palestra.sandbox import Bubblewrap, Limits, Program


async def main() -> None:
    async with Bubblewrap(Limits(wall_seconds=2.0)) as sandbox:
        outcome = await sandbox.run(Program(code="print(input())", stdin=b"hello"))
        print(outcome.stdout, outcome.exit_code, outcome.usage.cpu_seconds)

        outcome = await sandbox.run(Program(code="while True: pass", wall_seconds=0.5))
        print(outcome.killed_by)

        made = Program(command=["cp", "in.txt", "out.txt"], files={"in.txt": b"x"}, wanted=["out.txt"])
        print((await sandbox.run(made)).files)

        async with await sandbox.open_session() as session:
            await session.run("x = 20")
            print((await session.run("x + 1")).stdout)


asyncio.run(main())
