"""Calls that a framework makes again and that pass none of its tools: functions of the kit.

Rules of this part:

- While a run goes on in a saga, a call that its caller does not name is named by the package, so
  that it is known again when the framework runs its node or step again.
- Several runs may go on in one saga, also of different packages, and end in any order. A call is
  named until the last of them has ended. The run that began last is asked first: of a run inside
  another one it knows more. Whether a call is made in one of its runs at all, a package knows
  itself, and answers None where it is not.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

from agent_saga.kit.frameworks.attempts import PerSaga

if TYPE_CHECKING:
    from agent_saga.engine.saga import Saga
    from agent_saga.engine.tool import Tool

Name: TypeAlias = "Callable[[Tool, bytes], str | None]"
"""Returns the key of a call of a tool with arguments of a fingerprint; None where it has none."""


class _Runs:
    """What names the calls of one saga: its runs, outermost first, and what did so before them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.names: tuple[Name, ...] = ()
        self.before: Name | None = None

    def name(self, tool: Tool, mac: bytes) -> str | None:
        """Return the key that the innermost run that knows the call gives it."""
        around = () if self.before is None else (self.before,)
        keys = (name(tool, mac) for name in reversed((*around, *self.names)))
        return next((key for key in keys if key is not None), None)


_runs: PerSaga[_Runs] = PerSaga()


@contextlib.contextmanager
def naming(saga: Saga, name: Name) -> Iterator[None]:
    """Have the calls of a saga named, while a run goes on in it.

    Args:
        saga: the engine's saga.
        name: how the package of the run names them.
    """
    runs = _runs.of(saga, _Runs)
    with runs.lock:
        if not runs.names:
            runs.before, saga.names = saga.names, runs.name
        runs.names = (*runs.names, name)
    try:
        yield
    finally:
        with runs.lock:
            at = runs.names.index(name)
            runs.names = (*runs.names[:at], *runs.names[at + 1 :])
            if not runs.names:
                saga.names = runs.before
