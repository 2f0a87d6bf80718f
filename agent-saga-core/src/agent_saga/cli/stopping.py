"""Ctrl-C, SIGTERM and SIGHUP while a command acts on sagas: the inverse that runs comes to its end.

Rules of this part:

- The first signal is kept: the inverse that runs is finished and recorded, no other one is begun,
  the command tells what it did, and ends as programs do that a signal ends (128 and its number).
- The second one cuts the inverse that runs; whether it took effect is then a human's question. A
  SIGHUP never does: when a terminal goes, the kernel and the shell send one each. One that is
  ignored (`nohup`) stays so.
- While nothing is acted on (a module is loaded, a plan is made) a signal ends the command at once.
"""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING, Any, Final

from agent_saga.engine import interrupts

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["signals_kept", "stopped_by", "stops"]

_HANGUP: Final = getattr(signal, "SIGHUP", None)

_FIRST: Final = (
    b"Stopping as soon as the inverse that runs has ended. Once more cuts it in half, and a human "
    b"has to find out whether it took effect.\n"
)
_AGAIN: Final = b"Cutting it short.\n"

_taken: list[int] = []


def stopped_by() -> int | None:
    """Return the signal that was kept since this was asked last; None without one."""
    number = _taken[-1] if _taken else None
    _taken.clear()
    return number


@contextlib.contextmanager
def signals_kept() -> Iterator[None]:
    """Keep signals that end programs for the block, where they are Python's own to take."""
    _taken.clear()
    usual = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if not (usual and interrupts.install(ignored=True)):
        yield
        return
    held = interrupts.main
    held.user_code = False
    taken = stops()
    for number in taken:
        signal.signal(number, _keep)
    if not held.ignored:
        signal.signal(signal.SIGINT, _keep)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)
        if not held.ignored:
            signal.signal(signal.SIGINT, held.handle)
        held.user_code = True
        held.taken()
        interrupts.remove()


def stops() -> list[int]:
    """Return the signals beside SIGINT that would end this program at once."""
    asked = [signal.SIGTERM, *([] if _HANGUP is None else [_HANGUP])]
    return [number for number in asked if signal.getsignal(number) is signal.SIG_DFL]


def _keep(number: int, frame: Any) -> None:
    held = interrupts.main
    if number == _HANGUP and held.kept:
        return
    with contextlib.suppress(OSError):
        os.write(2, _AGAIN if held.kept else _FIRST)
    _taken.append(number)
    held.handle(number, frame)
