"""Opening a state store by its address.

Rules of this part:

- The address of a log also opens the state store that belongs to it: `file:` and a plain path name
  the log's folder, `memory:` a store in memory. `sqlite:` names a file of its own.
- Schemes are given by the caller: the built-in ones, and those of plugins. An unknown scheme is an
  error that names the known ones; nothing is guessed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from agent_saga.domain.address import FILE, local_path, scheme_of
from agent_saga.errors import ConfigurationError
from agent_saga.state.memory import MemoryStateStore

if TYPE_CHECKING:
    from agent_saga.state.base import StateStore

__all__ = ["BUILT_IN", "Opener", "open_state"]

Opener: TypeAlias = Callable[[str], "StateStore"]
"""Opens a store, given its whole address."""


def open_state(
    address: str | os.PathLike[str], schemes: Mapping[str, Opener] | None = None
) -> StateStore:
    """Return the state store at an address; a file is made at the first write only.

    Args:
        address: `memory:`, `file:FOLDER` or a plain path (the log's folder), `sqlite:FILE`, or an
            address of another scheme that is given.
        schemes: openers by scheme; the built-in ones if none are given.

    Raises:
        ConfigurationError: no opener is known for the scheme, or the address is malformed.
    """
    known = BUILT_IN if schemes is None else schemes
    text = os.fspath(address)
    scheme = scheme_of(text) if isinstance(address, str) else FILE
    if scheme not in known:
        raise ConfigurationError(
            f"No state store is known for addresses that begin with {scheme!r}.",
            fix=f"Use one of {', '.join(sorted(known))}, or install the package that brings it.",
        )
    return known[scheme](text if isinstance(address, str) else f"{FILE}:{text}")


def _memory(address: str) -> StateStore:
    if address.partition(":")[2]:
        raise ConfigurationError(f"A state store in memory has no name: {address!r}.")
    return MemoryStateStore()


def _in_log_folder(address: str) -> StateStore:
    from agent_saga.state import sqlite  # noqa: PLC0415 - only whoever uses it loads sqlite3

    folder = local_path(address).path
    return sqlite.SQLiteStateStore(f"{folder}{os.sep}{sqlite.FILE_NAME}")


def _sqlite(address: str) -> StateStore:
    from agent_saga.state import sqlite  # noqa: PLC0415 - only whoever uses it loads sqlite3

    return sqlite.SQLiteStateStore(local_path(address).path)


BUILT_IN: Final[Mapping[str, Opener]] = {
    "file": _in_log_folder,
    "memory": _memory,
    "sqlite": _sqlite,
}
"""The schemes that need nothing installed."""
