"""Calls that a framework makes again and that pass none of its tools: functions of the kit.

Rules of this part:

- While a run goes on in a saga, a call that its caller does not name is named by the package, so
  that it is known again when the framework runs its node or step again.
- Several runs may go on in one saga, and end in any order. A call is named until the last of them
  has ended; where it is made, and whether that is in a run at all, the package itself knows.
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
    """The runs that go on in one saga, and what named its calls before them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.number = 0
        self.before: Name | None = None


_runs: PerSaga[_Runs] = PerSaga()


@contextlib.contextmanager
def naming(saga: Saga, name: Name) -> Iterator[None]:
    """Have the calls of a saga named, while a run goes on in it.

    Args:
        saga: the engine's saga.
        name: the same for every run of the package in this saga.
    """
    runs = _runs.of(saga, _Runs)
    with runs.lock:
        if not runs.number:
            runs.before, saga.names = saga.names, name
        runs.number += 1
    try:
        yield
    finally:
        with runs.lock:
            runs.number -= 1
            if not runs.number:
                saga.names = runs.before
