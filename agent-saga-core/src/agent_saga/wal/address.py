r"""Opening a log by its address.

Rules of this part:

- An address is `scheme:rest`. What has no scheme that is registered is a path:
  `./agent-saga.wal`, `C:\logs\\a.wal`.
- The registry of schemes is an argument: packages add theirs through the plugin manager.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from agent_saga.domain.address import local_path, scheme_of
from agent_saga.errors import ConfigurationError
from agent_saga.wal.file import FileWAL
from agent_saga.wal.memory import MemoryWAL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agent_saga.wal.base import BaseWAL

__all__ = ["BUILT_IN", "open_wal"]


def _open_file(address: str, **options: Any) -> BaseWAL:
    """`file:PATH` or `file:///PATH`, each with `?force=1` if wanted."""
    path, force = local_path(address)
    return FileWAL(path, **{"force": force, **options})


def _open_memory(address: str, **options: Any) -> BaseWAL:
    del address
    return MemoryWAL(**options)


BUILT_IN: Final[Mapping[str, Callable[..., BaseWAL]]] = {
    "file": _open_file,
    "memory": _open_memory,
}
"""The schemes of the core: each a function of the address and the options of its backend."""


def open_wal(
    address: str | os.PathLike[str],
    schemes: Mapping[str, Callable[..., BaseWAL]] = BUILT_IN,
    **options: Any,
) -> BaseWAL:
    """Open a log by its address; nothing is made before its first record.

    Args:
        address: `memory:`, `file:/path`, a path, or an address of a scheme that a package added.
        schemes: the opener of each scheme.
        options: passed to the backend.

    Raises:
        ConfigurationError: nobody registered the scheme.
    """
    if not isinstance(address, str):
        return FileWAL(address, **options)
    scheme = scheme_of(address)
    opener = schemes.get(scheme)
    if opener is None:
        raise ConfigurationError(
            f"No backend is registered for the log's address {scheme}:….",
            fix=f"Known here: {', '.join(sorted(schemes))}. A plugin may register others.",
        )
    return opener(address, **options)
