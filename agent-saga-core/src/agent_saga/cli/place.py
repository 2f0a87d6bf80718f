"""Which log a command looks at.

Rules of this part:

- `--wal-path`, else what the library itself would use: `AGENT_SAGA_WAL`, else `./agent-saga.wal`.
- The absolute path is always said: a person must see which log was read.
- Looking makes nothing: no folder, no file.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from agent_saga.errors import ConfigurationError
from agent_saga.runtime.logs import canonical
from agent_saga.runtime.settings import Settings

__all__ = ["log_path", "wal_option"]

_FILE = "file:"


def log_path(given: str | None) -> Path:
    """Return the absolute path of the log that a command was asked about.

    Args:
        given: what `--wal-path` said, if it was given.

    Raises:
        ConfigurationError: the address is none of a log in files.
    """
    address = canonical(given or Settings.from_environ().wal)
    if address.startswith(_FILE):
        return Path(address.removeprefix(_FILE))
    if address.startswith("memory:"):
        raise ConfigurationError(
            "A log in memory ends with its process; there is nothing to look at.",
            fix="Name a log with --wal-path.",
        )
    raise ConfigurationError(
        f"This command reads logs in files, not {address.partition(':')[0]}.",
        fix="Name a path with --wal-path.",
    )


def wal_option(path: Path) -> str:
    """Return the option that names a log, as a part of a command to paste."""
    return f"--wal-path {shlex.quote(str(path))}"
