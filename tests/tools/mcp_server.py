"""A small MCP server on the official SDK: ``python mcp_server.py PORT`` serves streamable HTTP on the loopback."""

import sys

from mcp.server import MCPServer

server = MCPServer("palestra-test")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


if __name__ == "__main__":
    server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
