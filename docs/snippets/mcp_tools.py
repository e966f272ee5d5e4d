import asyncio
import sys


def serve() -> None:
    """A server with one tool."""
    from mcp.server import MCPServer

    server = MCPServer("arithmetic")

    @server.tool()
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    server.run("stdio")


async def main() -> None:
    from palestra.tools.mcp import McpServer

    async with McpServer(command=[sys.executable, __file__, "serve"], allow=["add"]) as arithmetic:
        (add,) = await arithmetic.tools()  # give these to UseTools
        print(add.pin)
        print((await add(a=2, b=3)).text)


if sys.argv[1:] == ["serve"]:
    serve()
else:
    asyncio.run(main())
