"""A process with the HTTP interface of vLLM and no model: ``python -m tests.inference.servers.stub_server PORT [WAIT]``."""

import asyncio
import sys

from tests.inference.servers.servers import Server, serving


async def main(port: int, wait: float) -> None:
    await asyncio.sleep(wait)
    server = Server()
    server.pace = 0.01
    async with serving(server.app(), port):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 0.0))
