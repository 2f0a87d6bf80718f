"""Which log a command looks at.

Rules of this part:

- `--wal-path`, else what the library itself would use: `AGENT_SAGA_WAL`, else `./agent-saga.wal`.
- The absolute path is always said: a person must see which log was read.
- Looking makes nothing: no folder, no file. What lists a whole log lists nothing where there is
  none, says so, and exits with 3; what names something in it is refused with `NotFound`.
"""

from __future__ import annotations

from pathlib import Path

from agent_saga.domain.commands import quoted
from agent_saga.errors import ConfigurationError, NotFound
from agent_saga.runtime.logs import canonical
from agent_saga.runtime.settings import Settings
from agent_saga.wal.directory import check_readable
from agent_saga.wal.os_port import OsPort

__all__ = ["NO_LOG", "existing_log", "is_there", "log_looked_at", "log_path", "wal_option"]

_FILE = "file:"
_looked_at: list[Path] = []
NO_LOG = "There is no log here yet."


def log_path(given: str | None) -> Path:
    """Return the absolute path of the log that a command was asked about.

    Args:
        given: what `--wal-path` said, if it was given.

    Raises:
        ConfigurationError: the address is empty, or none of a log in files.
    """
    _looked_at.clear()
    address = canonical(Settings.from_environ().wal if given is None else given)
    if address.startswith(_FILE):
        _looked_at.append(Path(address.removeprefix(_FILE)))
        return _looked_at[0]
    if address.startswith("memory:"):
        raise ConfigurationError(
            "A log in memory ends with its process; there is nothing to look at.",
            fix="Name a log with --wal-path.",
        )
    raise ConfigurationError(
        f"This command reads logs in files, not {address.partition(':')[0]}.",
        fix="Name a path with --wal-path.",
    )


def log_looked_at() -> str:
    """Return the log that the command was asked about; empty if it did not come to that."""
    return str(_looked_at[0]) if _looked_at else ""


def existing_log(given: str | None) -> Path:
    """Return the absolute path of a log that has to be there already; nothing is made.

    Raises:
        ConfigurationError: the address is none of a log in files.
        NotFound: there is none.
        WALPathError, WALFormatError: what stands there is no log that can be read.
    """
    path = log_path(given)
    if not is_there(path):
        raise NotFound(
            f"There is no log at {path}.",
            fix="Name another one with --wal-path; a log is made with its first record.",
        )
    return path


def is_there(path: Path) -> bool:
    """Say whether there is a log to look at; False when nothing stands at the path.

    Raises:
        WALPathError, WALFormatError: what stands there is no log that can be read.
    """
    return check_readable(OsPort(), str(path))


def wal_option(path: Path) -> str:
    """Return the option that names a log, as a part of a command to paste."""
    return f"--wal-path {quoted(str(path))}"
