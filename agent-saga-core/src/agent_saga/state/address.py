"""Opening a state store by its address.

Rules of this part:

- An address is `scheme:rest`; a plain path means `file:`. The address of a log also opens the state
  store that belongs to it: `file:` names the log's folder, `memory:` a store in memory.
- Schemes are given by the caller: the built-in ones, and those of plugins. An unknown scheme is an
  error that names the known ones; nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from agent_saga.errors import ConfigurationError
from agent_saga.state.memory import MemoryStateStore

if TYPE_CHECKING:
    from agent_saga.state.base import StateStore

__all__ = ["BUILT_IN", "Opener", "open_state"]

Opener: TypeAlias = Callable[[str], "StateStore"]
"""Opens a store, given what stands behind the scheme and its colon."""

_SCHEME: Final = re.compile(r"([a-z][a-z0-9+.-]+):(.*)", re.DOTALL)


def open_state(address: str, schemes: Mapping[str, Opener] | None = None) -> StateStore:
    """Return the state store at an address; a file is made at the first write only.

    Args:
        address: `memory:`, `file:FOLDER` or a plain path (the log's folder), `sqlite:FILE`, or an
            address of another scheme that is given.
        schemes: openers by scheme; the built-in ones if none are given.

    Raises:
        ConfigurationError: no opener is known for the scheme.
    """
    known = BUILT_IN if schemes is None else schemes
    match = _SCHEME.fullmatch(address)
    scheme, rest = match.groups() if match else ("file", address)
    if scheme not in known:
        raise ConfigurationError(
            f"No state store is known for addresses that begin with {scheme!r}.",
            fix=f"Use one of {', '.join(sorted(known))}, or install the package that brings it.",
        )
    return known[scheme](rest)


def _memory(rest: str) -> StateStore:
    if rest:
        raise ConfigurationError(f"A state store in memory has no name: 'memory:{rest}'.")
    return MemoryStateStore()


def _in_log_folder(folder: str) -> StateStore:
    from agent_saga.state import sqlite  # noqa: PLC0415 - only whoever uses it loads sqlite3

    return sqlite.SQLiteStateStore(Path(folder) / sqlite.FILE_NAME)


def _sqlite(file: str) -> StateStore:
    from agent_saga.state import sqlite  # noqa: PLC0415 - only whoever uses it loads sqlite3

    return sqlite.SQLiteStateStore(file)


BUILT_IN: Final[Mapping[str, Opener]] = {
    "file": _in_log_folder,
    "memory": _memory,
    "sqlite": _sqlite,
}
"""The schemes that need nothing installed."""
