"""Addresses of logs and state stores: which scheme they name, and which path a local one means.

Rules of this part:

- An address is `scheme:rest`; what does not begin with a scheme is a path. One letter and a colon
  is a drive, not a scheme.
- A local address is `file:PATH` with the path as it stands, nothing decoded, or `file:///PATH`. It
  never names a host. `?force=1` behind it accepts a network file system.
- The address of a log is that of its state store too, so both read it here.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from agent_saga.errors import ConfigurationError

__all__ = ["FILE", "LocalPath", "local_path", "scheme_of"]

FILE: Final = "file"
"""The scheme of a path."""

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
_FORCE: Final = "?force=1"


class LocalPath(NamedTuple):
    """What a local address means.

    Args:
        path: the path as it was given, relative or absolute.
        force: whether a network file system is accepted.
    """

    path: str
    force: bool


def scheme_of(address: str) -> str:
    """Return the scheme of an address in lower case; `file` for a path."""
    match = _SCHEME.match(address)
    return match[1].lower() if match else FILE


def local_path(address: str) -> LocalPath:
    """Return the path that a `file:` address or a plain path means.

    Raises:
        ConfigurationError: the address names a host, or no path at all.
    """
    match = _SCHEME.match(address)
    if match is None:
        return LocalPath(address, False)
    rest = address[match.end() :]
    path = rest.removesuffix(_FORCE)
    if path.startswith("//"):
        path = path[2:].removeprefix("localhost")
        if not path.startswith("/"):
            raise ConfigurationError(
                f"The address {address!r} names a host; a file belongs to this one.",
                fix=f"Write file:{path} for a path, or file:///… for an absolute one.",
            )
    if not path:
        raise ConfigurationError(f"The address {address!r} names no path.")
    return LocalPath(path, path != rest and rest.endswith(_FORCE))
