"""Which log a boundary writes to.

Rules of this part:

- Durable by default: what `set_default_wal` set, else `AGENT_SAGA_WAL`, else `./agent-saga.wal`. A
  log in memory is used only when it is asked for (`memory:`).
- A process has one writer for each path: the same address gives the same log object. `memory:` is a
  log of its own for everyone who asks.
- Nothing is created before the first record. At the end of the process open logs are closed.
"""

from __future__ import annotations

import atexit
import os
import threading
from typing import TYPE_CHECKING, Final

from agent_saga.errors import ConfigurationError
from agent_saga.plugins.process import process_plugins
from agent_saga.runtime.settings import Settings, given_settings
from agent_saga.wal.address import open_wal
from agent_saga.wal.base import BaseWAL

if TYPE_CHECKING:
    from collections.abc import Callable

MEMORY: Final = "memory:"

_lock = threading.Lock()
_logs: dict[str, BaseWAL] = {}


class _Chosen:
    """What `set_default_wal` set."""

    default: BaseWAL | None = None


_chosen = _Chosen()


def set_default_wal(wal: BaseWAL | str | None) -> None:
    """Set the log of boundaries that name none; None goes back to the settings.

    Args:
        wal: a log, an address or a path.
    """
    _chosen.default = None if wal is None else wal_at(wal)


def chosen_wal() -> BaseWAL | None:
    """Return what `set_default_wal` set; None when the settings hold."""
    return _chosen.default


def default_wal(settings: Settings) -> BaseWAL:
    """Return the log of boundaries that name none."""
    return _chosen.default if _chosen.default is not None else wal_at(settings.wal, settings)


def wal_at(wal: BaseWAL | str | os.PathLike[str], settings: Settings | None = None) -> BaseWAL:
    """Return the log at an address, the same object for the same address.

    Raises:
        ConfigurationError: it is no log and no address, or its scheme is unknown.
    """
    if isinstance(wal, BaseWAL):
        return wal
    if not isinstance(wal, (str, os.PathLike)):
        raise ConfigurationError(f"wal= takes a log, an address or a path, not {wal!r}.")
    address = canonical(os.fspath(wal))
    if address == MEMORY:
        return open_wal(address, _schemes())
    with _lock:
        log = _logs.get(address)
        if log is None or log.closed:
            chosen = Settings.from_environ() if settings is None else given_settings(settings)
            log = open_wal(address, _schemes())
            log.stall_after = chosen.stall_after
            log.undo_window = chosen.undo_window
            _logs[address] = log
        return log


def canonical(address: str) -> str:
    """Return an address in the one form in which it is compared: `file:` and an absolute path.

    Raises:
        ConfigurationError: the address can be no path.
    """
    if "\0" in address:
        raise ConfigurationError(f"The address {address!r} can be no path.")
    if address in ("", "file:"):
        raise ConfigurationError(
            "The address of the log is empty.",
            fix="Give a path, or leave it out for the one of the settings.",
        )
    scheme, colon, rest = address.partition(":")
    if colon and len(scheme) > 1 and scheme != "file":
        return address
    path = rest if colon and scheme == "file" else address
    return f"file:{os.path.abspath(os.path.expanduser(path))}"  # noqa: PTH100, PTH111 - keeps symlinks


def _schemes() -> dict[str, Callable[[str], BaseWAL]]:
    return dict(process_plugins().backends.wal)


@atexit.register
def _close_all() -> None:
    for log in list(_logs.values()):
        log.close()
