"""Calls that a framework makes again and that pass none of its tools: functions of the kit.

Rules of this part:

- While a run goes on in a saga, a call that its caller does not name is named by the package, so
  that it is known again when the framework runs its node or step again.
- In a boundary of the program a framework may run something again, too, though no run of a package
  goes on there. A package that knows such calls names them in every saga that begins after it was
  loaded; it is asked last.
- Several runs may go on in one saga, also of different packages, and end in any order. A call is
  named until the last of them has ended. The run that began last is asked first: of a run inside
  another one it knows more. Whether a call is made in one of its runs at all, a package knows
  itself, and answers None where it is not.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, TypeAlias

from agent_saga.engine.saga import NAMED_BY
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
_everywhere: Final[list[Callable[[Saga, Tool, bytes], str | None]]] = []


def everywhere(name: Callable[[Saga, Tool, bytes], str | None]) -> None:
    """Have the calls of every saga named that begins from now on, once no run names them.

    Args:
        name: as `Name`, with the saga before; None where a call is none of the framework's.
    """
    _everywhere.append(name)
    if _names_of not in NAMED_BY:
        NAMED_BY.append(_names_of)


def _names_of(saga: Saga) -> Name:
    """Return what names the calls of a saga wherever they are made; it does not keep it alive."""
    found = weakref.ref(saga)

    def name(tool: Tool, mac: bytes) -> str | None:
        here = found()
        keys = (each(here, tool, mac) for each in _everywhere if here is not None)
        return next((key for key in keys if key is not None), None)

    return name


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
