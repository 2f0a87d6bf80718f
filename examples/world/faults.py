"""Lost connections, asked for ahead: before the effect, or after it with the answer lost.

Whoever called cannot tell the two apart: both are the same `ConnectionError`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

BEFORE = "before"
AFTER = "after"


class Faults:
    """Which operation loses its connection next, and when."""

    def __init__(self) -> None:
        self._struck: dict[str, str] = {}

    def strike(self, operation: str, when: str) -> None:
        """Let the next call of an operation lose its connection.

        Args:
            operation: for example "charge" or "refund".
            when: BEFORE the effect, or AFTER it.
        """
        self._struck[operation] = when

    @contextmanager
    def around(self, operation: str) -> Iterator[None]:
        """Run an operation, with the loss that was asked for.

        Raises:
            ConnectionError: the connection is lost; the caller does not learn when.
        """
        when = self._struck.pop(operation, "")
        if when == BEFORE:
            raise ConnectionError(f"{operation}: the connection was lost")
        yield
        if when == AFTER:
            raise ConnectionError(f"{operation}: the connection was lost")
