"""A service of feature flags over HTTP: names and values, read and set."""

from __future__ import annotations

from typing import Any

from .faults import Faults
from .web import Service, request, settled


class FlagService(Service):
    """The service: `GET /flags`, `PUT /flags/NAME`.

    Args:
        faults: the connections that get lost.
        flags: what is set at first.
    """

    def __init__(self, faults: Faults, flags: dict[str, str]) -> None:
        self._flags = dict(flags)
        super().__init__(faults)

    def handle(self, method: str, path: list[str], body: Any) -> Any:
        """Do what a request asks and return the answer."""
        match method, path:
            case "GET", ["flags"]:
                return self._flags
            case "PUT", ["flags", name]:
                old = self._flags.get(name)
                self._flags[name] = body
                return {"name": name, "was": old}
        return super().handle(method, path, body)

    def operation(self, method: str, path: list[str]) -> str:
        """Return what a request is called, for `Faults`."""
        return {"PUT": "set_flag"}.get(method, "")


class Flags:
    """What a client of the service sees.

    Args:
        port: where the service listens.
    """

    def __init__(self, port: int) -> None:
        self.port = port

    def set(self, name: str, value: str, key: str) -> dict[str, Any]:
        """Set a flag and return its name and what it was."""
        return dict(request(self.port, "PUT", f"/flags/{name}", value, key))

    def settled(self, key: str) -> dict[str, Any] | None:
        """Return what a key set, or None after making sure that it never will."""
        answer: dict[str, Any] | None = settled(self.port, key)
        return answer

    def state(self) -> dict[str, str]:
        """Return every flag's value."""
        flags = request(self.port, "GET", "/flags")
        return {f"flags: {name}": value for name, value in sorted(flags.items())}
