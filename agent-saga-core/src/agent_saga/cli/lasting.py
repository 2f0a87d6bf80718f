"""No inverse ends a program that undoes as if all had gone well.

Rules of this part:

- While handlers may run, `os._exit` ends this process as it always does, but never with 0: what
  called it had not brought the program to its end. The log has what was begun.
- Replacing the process by another program is refused, since that one's exit code would be ours.
- A process that was forked off is left alone.
- What took these functions out of `os` before, and native code, cannot be reached.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, Final, NoReturn

from agent_saga.cli.exits import Exit
from agent_saga.cli.output import printable
from agent_saga.domain.commands import recover_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["to_the_end"]

_REPLACE: Final = ("execv", "execve")
_TOLD: Final = "A handler ended this process before it was done; the next pass goes on: "


@contextlib.contextmanager
def to_the_end(path: Path) -> Iterator[None]:
    """Let nothing end this process with 0, or replace it, before the block has ended.

    Args:
        path: the log that is acted on.
    """
    before = {name: getattr(os, name) for name in ("_exit", *_REPLACE)}
    here = os.getpid()
    told = f"{_TOLD}{printable(recover_command(str(path)))}\n".encode()
    os._exit = _ending(before["_exit"], here, told)  # type: ignore[assignment]
    for name in _REPLACE:
        setattr(os, name, _replacing(before[name], here))
    try:
        yield
    finally:
        for name, function in before.items():
            setattr(os, name, function)


def _ending(
    exit_now: Callable[[int], NoReturn], here: int, told: bytes
) -> Callable[[int], NoReturn]:
    def _exit(status: int) -> NoReturn:
        if os.getpid() == here:
            with contextlib.suppress(OSError):
                os.write(2, told)
            if not status & 0xFF:
                status = Exit.NOT_CLEAN
        exit_now(status)

    return _exit


def _replacing(replace: Callable[..., NoReturn], here: int) -> Callable[..., NoReturn]:
    def refused(*words: Any, **more: Any) -> NoReturn:
        if os.getpid() == here:
            raise PermissionError("a handler may not put another program in the place of this one")
        replace(*words, **more)

    return refused
