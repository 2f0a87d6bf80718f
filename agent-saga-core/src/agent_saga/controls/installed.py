"""What the process has set for every gate: the controls that belong to no single gate.

Rules of this part:

- One control for each place: "switch" (kill switch and quarantine), then "breaker". A boundary
  takes what is set when it opens; setting something later reaches the boundaries that open later.
- `version` rises with every change, so that a gate that was put together is put together anew.
"""

from __future__ import annotations

import threading
from typing import Final

from agent_saga.controls.control import Control
from agent_saga.errors import ConfigurationError

PLACES: Final = ("switch", "breaker")
"""The places of installed controls, in the order in which they judge."""


class Installed:
    """What is set for the gates of a process.

    Attributes:
        version: rises with every change.
    """

    def __init__(self) -> None:
        self.version = 0
        self._controls: dict[str, Control] = {}
        self._lock = threading.Lock()

    def put(self, place: str, control: Control | None) -> None:
        """Set the control of a place; None takes it away.

        Raises:
            ConfigurationError: there is no such place, or it is no control.
        """
        if place not in PLACES:
            raise ConfigurationError(f"A control stands in one of {PLACES}, not in {place!r}.")
        if control is not None and not isinstance(control, Control):
            raise ConfigurationError(f"{type(control).__name__} is no control of a gate.")
        with self._lock:
            if control is None:
                self._controls.pop(place, None)
            else:
                self._controls[place] = control
            self.version += 1

    def changed(self) -> None:
        """Have every gate put together anew for the boundaries that open from now on."""
        with self._lock:
            self.version += 1

    def get(self, place: str) -> Control | None:
        """Return the control of a place, or None."""
        return self._controls.get(place)

    def in_order(self) -> list[Control]:
        """Return what is set, in the order in which it judges."""
        return [self._controls[place] for place in PLACES if place in self._controls]


INSTALLED: Final = Installed()
"""What this process has set."""
