"""An MCP server over a world in a file.

python mcp_server.py WORLD
"""

from __future__ import annotations

import os
import sys
from typing import Any

from mcp.server.fastmcp import FastMCP

from agent_saga_testing.world import World

world = World(sys.argv[1], honours_keys=False)
server = FastMCP("shop")


@server.tool()
def book(item: str) -> dict[str, Any]:
    """Book an item."""
    return world.do(item)


@server.tool()
def fails(item: str) -> str:
    """Fail."""
    raise RuntimeError(f"no {item}")


@server.tool()
def dies(item: str) -> str:
    """Die, with the effect made."""
    world.do(item)
    os._exit(9)


if __name__ == "__main__":
    server.run()
