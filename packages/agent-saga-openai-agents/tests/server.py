"""An MCP server over a world in a file; run by `test_servers`.

python server.py WORLD
"""

from __future__ import annotations

import os
import sys
from typing import Any

from agent_saga_testing.world import World

try:
    from mcp.server import MCPServer as Server
except ImportError:
    from mcp.server.fastmcp import FastMCP as Server

world = World(sys.argv[1], honours_keys=False)
server = Server("shop")


@server.tool()
def book(item: str) -> dict[str, Any]:
    """Book an item."""
    return world.do(item)


@server.tool()
def look(item: str) -> str:
    """Look at an item."""
    return f"{item} is there"


@server.tool()
def refuse(item: str) -> dict[str, Any]:
    """Refuse an item."""
    raise ValueError(f"no {item} is left")


@server.tool()
def vanish(item: str) -> dict[str, Any]:
    """Book an item and end before the answer."""
    world.do(item)
    os._exit(1)


if __name__ == "__main__":
    server.run()
