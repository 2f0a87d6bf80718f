"""The tools of the cases: effects in a world in a file, without idempotency keys.

Rules of this part:

- The world knows no keys here, so a call that is made twice has two effects, and is found.
- An inverse is named, and is given the world's place with the result: any process can run it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

from agent_saga import FileSwitchStore, KillSwitch, compensator, current_saga
from agent_saga_testing.integration.driver import CaseTool
from agent_saga_testing.world import World

__all__ = ["Tools"]

_DEADLY = getattr(signal, "SIGKILL", signal.SIGTERM)
KILLED = -_DEADLY if hasattr(signal, "SIGKILL") else int(_DEADLY)
"""The exit status of a process that `Tools.dies_once` has killed."""

LOOK = 0.002
"""Seconds between two looks at whether a held tool may go on."""


@compensator("agent_saga_testing.integration.cancel")
def cancel(world: str, id: int, *, idempotency_key: str) -> None:  # noqa: A002 - the result's own name
    """Undo an effect of a case."""
    World(world).undo(id, key=idempotency_key)


_UNDO = cancel.using(world="$.world", id="$.id")


class Tools:
    """The tools of one case.

    Args:
        folder: where the world lies, and the marks that outlive a process.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.world = World(folder / "world.sqlite", honours_keys=False)
        self.reached = threading.Event()
        self.released = threading.Event()
        self.sagas: set[str] = set()

    def _effect(self, item: str) -> dict[str, Any]:
        return {**self.world.do(item), "world": str(self.world.path)}

    def book(self) -> CaseTool:
        """A synchronous effect."""

        def book(item: str) -> dict[str, Any]:
            """Book an item."""
            return self._effect(item)

        return CaseTool("book", book, "COMPENSABLE", _UNDO)

    def reserve(self) -> CaseTool:
        """An asynchronous effect."""

        async def reserve(item: str) -> dict[str, Any]:
            """Reserve an item."""
            await asyncio.sleep(0)
            return self._effect(item)

        return CaseTool("reserve", reserve, "COMPENSABLE", _UNDO)

    def wire(self) -> CaseTool:
        """An effect that cannot be undone."""

        def wire(item: str) -> dict[str, Any]:
            """Wire money."""
            return self._effect(item)

        return CaseTool("wire", wire, "IRREVERSIBLE")

    def look_up(self) -> CaseTool:
        """A read that fails."""

        def look_up(item: str) -> str:
            """Look an item up."""
            raise RuntimeError(f"{item} cannot be looked up")

        return CaseTool("look_up", look_up)

    def quits(self, ending: type[BaseException]) -> CaseTool:
        """A synchronous read that ends the program."""

        def quits(item: str) -> str:
            """End the program."""
            raise ending(item)

        return CaseTool("quits", quits)

    def quits_later(self, ending: type[BaseException]) -> CaseTool:
        """An asynchronous read that ends the program."""

        async def quits_later(item: str) -> str:
            """End the program, in a while."""
            await asyncio.sleep(LOOK)
            raise ending(item)

        return CaseTool("quits_later", quits_later)

    def notes_saga(self) -> CaseTool:
        """A read that notes the saga that it runs in."""

        def notes_saga(item: str) -> str:
            """Note the saga."""
            saga = current_saga()
            self.sagas.add(saga.id if saga is not None else "")
            return item

        return CaseTool("notes_saga", notes_saga)

    def halts(self) -> CaseTool:
        """A read that halts everything, as a person would meanwhile."""

        def halts(item: str) -> str:
            """Halt everything."""
            switch = KillSwitch(FileSwitchStore(self._folder / "log"))
            switch.halt("*", reason=item, by="soc")
            return item

        return CaseTool("halts", halts)

    def held_book(self, timeout: float | None = None) -> CaseTool:
        """A synchronous effect that comes when it is released.

        Args:
            timeout: seconds after which a call is given up.
        """

        def held_book(item: str) -> dict[str, Any]:
            """Book an item, slowly."""
            self.reached.set()
            while not self.released.is_set():
                time.sleep(LOOK)
            return self._effect(item)

        return CaseTool("held_book", held_book, "COMPENSABLE", _UNDO, timeout)

    def releases(self) -> CaseTool:
        """A read that lets held tools go on."""

        def releases(item: str) -> str:
            """Let it go on."""
            self.released.set()
            return item

        return CaseTool("releases", releases)

    def held_reserve(self) -> CaseTool:
        """An asynchronous effect that never comes to its end."""

        async def held_reserve(item: str) -> dict[str, Any]:
            """Reserve an item, slowly."""
            self.reached.set()
            while not self.released.is_set():  # noqa: ASYNC110 - the test releases it from a thread
                await asyncio.sleep(LOOK)
            return self._effect(item)

        return CaseTool("held_reserve", held_reserve, "COMPENSABLE", _UNDO)

    def dies_once(self) -> CaseTool:
        """A read that kills its process the first time."""

        def dies_once(item: str) -> str:
            """Kill the process."""
            mark = self._folder / "died"
            if not mark.exists():
                mark.touch()
                os.kill(os.getpid(), _DEADLY)
            return item

        return CaseTool("dies_once", dies_once)
