"""One stdio server of the Model Context Protocol, called from plain threads.

Rules of this part:

- The server is a process of its own, started with a module's name; the protocol is spoken by the
  public SDK, on a loop of its own. Calls from several threads are answered one by one.
- Its states lie in a folder that goes when this process ends.
- What the server marks as an error is a `WorldError`.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from typing import Any

from anyio.from_thread import start_blocking_portal
from mcp import Client, StdioServerParameters

from bench.worlds.world import Args, WorldError


class Server:
    """A server that is started here and ends with this process.

    Args:
        module: what is run.
        folder_setting: the environment variable that says where it keeps its states.

    Attributes:
        folder: where it keeps them.
    """

    def __init__(self, module: str, folder_setting: str) -> None:
        self._open = contextlib.ExitStack()
        self.folder = self._open.enter_context(
            tempfile.TemporaryDirectory(prefix="agent-saga-worlds-")
        )
        environ = {**os.environ, folder_setting: self.folder}
        command = StdioServerParameters(command=sys.executable, args=["-m", module], env=environ)
        self._portal = self._open.enter_context(start_blocking_portal())
        self._client = self._open.enter_context(
            self._portal.wrap_async_context_manager(Client(command, mode="legacy"))
        )

    def call(self, tool: str, args: Args) -> dict[str, Any]:
        """Return what a tool answers.

        Raises:
            WorldError: the server says that it is an error.
        """
        answer = self._portal.call(self._client.call_tool, tool, dict(args))
        payload: dict[str, Any] = answer.structured_content or {}
        if answer.is_error:
            raise WorldError(str(payload.get("parsed_content") or payload.get("error") or "error"))
        return payload

    def offered(self) -> frozenset[str]:
        """Return the names of the server's tools."""
        return frozenset(tool.name for tool in self._portal.call(self._client.list_tools).tools)

    def close(self) -> None:
        """End the server."""
        self._open.close()
