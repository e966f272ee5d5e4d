import asyncio

from palestra.sandbox.shell import NewFile, Shells


async def main() -> None:
    async with Shells() as shells, await shells.open([NewFile("home/agent/notes.txt", b"one\ntwo\n")]) as shell:
        print((await shell.run("wc -l notes.txt; cd /tmp; export WHO=me")).text)

        waiting = await shell.run("read name; echo hello $name", wall_seconds=0.2)
        print(waiting.running, (await shell.send("Ada\n")).text)

        async with await shell.fork() as twin:
            print((await twin.run("echo $WHO $PWD; false")).exit_code)


asyncio.run(main())
