"""A notifier that is a program: it is run with the case as JSON on its standard input.

It runs where the command was typed, whatever working directory an imported module has chosen.
"""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agent_saga.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_saga.plugins.notifiers import Case

__all__ = ["NAME", "program"]

NAME: Final = "command"
"""Under this name it is kept who was told; another program is not told again of known cases."""

_LONGEST: Final = 25.0


def program(command: str) -> Callable[[Case], None]:
    """Return a notifier that runs a program; it fails when the program does.

    Args:
        command: the program and its arguments, quoted as for a shell; no shell runs it.

    Raises:
        ConfigurationError: the command cannot be read.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ConfigurationError(f"--notify cannot be read: {error}.") from error
    if not words:
        raise ConfigurationError("--notify names no program.")
    here = Path.cwd()

    def notify(case: Case) -> None:
        text = json.dumps(case._asdict())
        subprocess.run(  # noqa: S603 - the operator's own program, run without a shell
            words, input=text, text=True, check=True, timeout=_LONGEST, stdout=subprocess.DEVNULL,
            cwd=here,
        )  # fmt: skip

    return notify
