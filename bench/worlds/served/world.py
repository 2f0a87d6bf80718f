"""The domains of tau2-bench behind stdio servers of the Model Context Protocol.

Rules of this part:

- The servers come from their packages as published, a process each. An agent reaches its world by
  messages alone; inverses and probers do, too.
- A server keeps the states of many tasks apart by a key, and one state in one file; the judge reads
  the file. Its log of calls is no part of the state.
- A key is used again once its world is gone, so that a server's memory stays bounded.
"""

from __future__ import annotations

import hashlib
import json
import weakref
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from itertools import count
from pathlib import Path
from typing import Any, Final

from bench.worlds import plans
from bench.worlds.served.server import Server
from bench.worlds.tau2 import airline, retail, task_list
from bench.worlds.tau2.tasks import recorded
from bench.worlds.world import Args, GoldCall, Task

DOMAINS: Final = ("retail", "airline", "mock")
_TABLES: Final[dict[str, dict[str, plans.Plan]]] = {
    "retail": retail.TABLE,
    "airline": airline.TABLE,
    "mock": task_list.TABLE,
}
_ASIDE: Final = {"reset_state", "get_call_log"}
"""Tools that are no part of the world."""
_BESIDES: Final = {"calls", "domain", "task_id"}
"""What a server writes into a state about itself."""


class Served:
    """The tasks of one domain, behind a server.

    Args:
        domain: retail, airline or mock.
    """

    secrets: frozenset[str] = frozenset()
    patience = 2.0
    others = (
        GoldCall("dismiss_notification", {"notification_id": "notif_1"}),
        GoldCall("send_certificate", {"user_id": "mia_li_3668", "amount": 100}),
    )

    def __init__(self, domain: str) -> None:
        self.name = f"mcp-{domain}"
        self._domain = domain
        self._numbers = count()
        self._free: list[str] = []

    def tasks(self) -> Sequence[Task]:
        """Return the tasks that have a recorded trajectory."""
        return recorded(self.name, _data(self._domain))

    def open(self, task: Task) -> ServedPlace:
        """Return a fresh state of a task on the server."""
        key = self._free.pop() if self._free else f"tau2/{self._domain}/{next(self._numbers)}"
        place = ServedPlace(_server(self._domain), self._domain, task.name, key)
        weakref.finalize(place, self._free.append, key)
        return place

    def plan(self, tool: str) -> plans.Plan:
        """Return the row of a tool."""
        return plans.row(_TABLES[self._domain], tool)

    def offered(self, task: Task) -> frozenset[str]:
        """Return the names of the server's tools, without those for whoever runs it."""
        del task
        return _server(self._domain).offered() - _ASIDE

    def close(self) -> None:
        """End the server, for whom a program would wait at its end."""
        _server(self._domain).close()
        _server.cache_clear()


class ServedPlace:
    """One state on a server."""

    def __init__(self, server: Server, domain: str, task: str, key: str) -> None:
        self._server, self._key = server, key
        self._file = Path(server.folder, f"{hashlib.sha256(key.encode()).hexdigest()}.json")
        server.call("reset_state", {"domain": domain, "task_id": task, "state_key": key})

    def call(self, tool: str, args: Args) -> Any:
        """Call a tool; raise `WorldError` when it answers with an error."""
        return self._server.call(tool, {**args, "state_key": self._key})["parsed_content"]

    def snapshot(self) -> Any:
        """Return the state."""
        state = json.loads(self._file.read_text("utf-8"))
        kept = {key: part for key, part in state.items() if key not in _BESIDES}
        return kept if "db" in kept else {"db": kept}

    def fingerprint(self) -> Any:
        """Return something that differs when the state does."""
        return json.dumps(self.snapshot(), sort_keys=True)


@cache
def _server(domain: str) -> Server:
    return Server(f"tau2_{domain}_mcp.server", f"TAU2_{domain.upper()}_MCP_STATE_DIR")


def _data(domain: str) -> Path:
    data = Path(str(files(f"tau2_{domain}_mcp"))) / "data"
    inner = data / "tau2" / "domains" / domain
    return inner if inner.is_dir() else data
