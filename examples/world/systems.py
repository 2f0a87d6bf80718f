"""Opens the world in a folder, hands its systems to the tools, and looks at all of them.

    with opened() as world:
        before = world.state()

The tools of `tools` act on the world that is open; there is one at a time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from .faults import Faults
from .flags import Flags, FlagService
from .folder import Folder
from .ledger import Ledger
from .stock import Stock
from .tickets import Tickets, TicketService

SHELF = {"lamp": 12}
FLAGS = {"checkout": "classic"}


class World:
    """The five systems.

    Args:
        folder: where files and databases lie.
        stack: closes the services at its end.
    """

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.faults = Faults()
        tickets, flags = TicketService(self.faults), FlagService(self.faults, FLAGS)
        stack.callback(tickets.close)
        stack.callback(flags.close)
        self.ledger = Ledger(folder / "ledger.sqlite", self.faults)
        self.files = Folder(folder / "files", self.faults)
        self.stock = Stock(folder / "stock.sqlite", self.faults, SHELF)
        self.tickets = Tickets(tickets.port)
        self.flags = Flags(flags.port)
        self._begin()

    def _begin(self) -> None:
        """Be a world in which things have happened already."""
        self.ledger.charge("ada", 1900, "last month")
        self.files.write("address.txt", "Ada, 1 Old Street")
        self.tickets.open("billing", "an old question", "last week")

    def state(self) -> dict[str, str]:
        """Ask every system what stands now."""
        systems = (self.ledger, self.files, self.stock, self.tickets, self.flags)
        return {what: value for system in systems for what, value in system.state().items()}

    def traces(self) -> dict[str, int]:
        """Ask the systems that never forget how many entries of each kind they have."""
        return {**self.ledger.traces(), **self.tickets.traces()}


_open: list[World] = []


@contextmanager
def opened() -> Iterator[World]:
    """Open a new world in a temporary folder; nothing of it is left at the end."""
    with tempfile.TemporaryDirectory(prefix="agent-saga-") as folder, ExitStack() as stack:
        world = World(Path(folder), stack)
        _open.append(world)
        try:
            yield world
        finally:
            _open.remove(world)


def here() -> World:
    """Return the world that is open."""
    return _open[-1]
