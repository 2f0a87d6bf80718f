r"""Opening a log by its address.

Rules of this part:

- An address is `scheme:rest`. What has no scheme that is registered is a path:
  `./agent-saga.wal`, `C:\logs\\a.wal`.
- The registry of schemes is an argument: packages add theirs through the plugin manager.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

from agent_saga.errors import ConfigurationError
from agent_saga.wal.file import FileWAL
from agent_saga.wal.memory import MemoryWAL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agent_saga.wal.base import BaseWAL

__all__ = ["BUILT_IN", "open_wal"]

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")


def _open_file(address: str, **options: Any) -> BaseWAL:
    """`file:/abs/path`, `file:relative`, `file:///abs/path`, each with `?force=1` if wanted."""
    parts = urlsplit(address)
    if parts.netloc not in ("", "localhost"):
        raise ConfigurationError(
            f"The log's address {address!r} names a host; a file log has none."
        )
    force = parse_qs(parts.query).get("force", ["0"])[-1] in ("1", "true", "yes")
    return FileWAL(unquote(parts.path), force=force, **options)


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
    text = os.fspath(address)
    found = _SCHEME.match(text) if isinstance(address, str) else None
    if found is None:
        return FileWAL(text, **options)
    opener = schemes.get(found[1].lower())
    if opener is None:
        raise ConfigurationError(
            f"No backend is registered for the log's address {found[1]}:….",
            fix=f"Known here: {', '.join(sorted(schemes))}; install the package of the backend.",
        )
    return opener(text, **options)
