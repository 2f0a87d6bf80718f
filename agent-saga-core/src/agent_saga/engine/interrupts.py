"""Ctrl-C in a synchronous boundary: never in the middle of the log's or the unwinding's work.

Rules of this part:

- While a synchronous boundary is open in the main thread and Python's own handler is in place,
  SIGINT is taken by a handler that raises KeyboardInterrupt only while the user's code runs.
  Otherwise the interrupt is kept and raised when the engine hands control back.
- During unwinding the first interrupt is kept; a second one ends the unwinding, and the saga is
  released to recovery.
- Whoever acts on sagas of others keeps every interrupt from the claim to its end, and looks at
  `asked_to_stop` before each inverse: the first one lets the inverse that runs come to its end.
- Code that opens, leaves or calls is the engine's too, although it is on the user's stack: it is
  marked with `engine_code`, and the handler looks for it.
- Other threads, and programs with a handler of their own (asyncio's runner has one), are left
  alone.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any, Final, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

_engine: Final[set[CodeType]] = set()
_user: Final[set[CodeType]] = set()


def engine_code(fn: F) -> F:
    """Mark a function in which, and below which, an interrupt is kept."""
    _engine.add(fn.__code__)
    return fn


def user_code(fn: F) -> F:
    """Mark a function below which the user's code runs again."""
    _user.add(fn.__code__)
    return fn


def _in_engine(frame: FrameType | None) -> bool:
    """Say whether an interrupt met the engine's own work, which may stand on the user's stack."""
    ours = True
    while frame is not None:
        if frame.f_code in _user:
            return ours
        if frame.f_code in _engine:
            return True
        ours = ours and str(frame.f_globals.get("__name__")).startswith("agent_saga.")
        frame = frame.f_back
    return False


class Stopped(KeyboardInterrupt):
    """Somebody asked for an end, and nothing was cut for it."""


class Interrupts:
    """The kept interrupts of the main thread.

    Attributes:
        user_code: an interrupt may be raised at once.
        kept: how many came meanwhile.
        installed: how many open boundaries have taken SIGINT over; thread: the main thread's id.
        ignored: SIGINT is ignored all the while.
    """

    __slots__ = ("ignored", "installed", "kept", "thread", "user_code")

    def __init__(self) -> None:
        self.installed = 0
        self.thread = 0
        self.user_code = True
        self.ignored = False
        self.kept = 0

    def handle(self, signum: int, frame: FrameType | None) -> None:
        """Take a SIGINT."""
        if self.user_code and not _in_engine(frame):
            raise KeyboardInterrupt
        self.kept += 1

    def taken(self) -> KeyboardInterrupt | None:
        """Return the kept interrupt as an exception, and forget it."""
        if not self.kept:
            return None
        self.kept = 0
        return KeyboardInterrupt()


main = Interrupts()


def here() -> Interrupts | None:
    """Return the main thread's interrupts if this is the main thread and they are in our hands."""
    if main.installed and threading.get_ident() == main.thread:
        return main
    return None


def install(*, ignored: bool = False) -> bool:
    """Take SIGINT over; return whether that was done and must be undone with `remove`.

    Args:
        ignored: also where it is ignored, as in the background of a shell; it stays ignored, and
            other signals can be kept.
    """
    if threading.current_thread() is not threading.main_thread():
        return False
    before = signal.getsignal(signal.SIGINT)
    is_ignored = ignored and before is signal.SIG_IGN
    if not (main.installed or is_ignored or before is signal.default_int_handler):
        return False
    if not main.installed:
        main.user_code, main.kept, main.ignored = True, 0, is_ignored
        if not is_ignored:
            signal.signal(signal.SIGINT, main.handle)
    main.installed += 1
    main.thread = threading.get_ident()
    return True


def remove() -> None:
    """Give SIGINT back to Python's own handler when the last boundary has ended.

    Raises:
        KeyboardInterrupt: one came after the engine's last look.
    """
    main.installed -= 1
    if main.installed:
        return
    if not main.ignored:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    kept = main.taken()
    if kept is not None:
        raise kept


def asked_to_stop() -> bool:
    """Say whether an interrupt is kept on this thread."""
    held = here()
    return held is not None and held.kept > 0


def keep(count: int = 1) -> None:
    """Keep an interrupt that was taken, so that what comes after it stops too."""
    held = here()
    if held is not None:
        held.kept += count


def raise_kept() -> None:
    """Raise the interrupt that `kept` keeps, where what it interrupts can still be given up.

    Raises:
        KeyboardInterrupt: one came, and nobody outside keeps them.
    """
    held = here()
    interrupt = held.taken() if held is not None and held.installed == 1 else None
    if interrupt is not None:
        raise interrupt


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """Keep every interrupt for the length of the block.

    Raises:
        KeyboardInterrupt: at its end, if one came and nobody outside of it keeps them.
    """
    taken, held = install(), here()
    before = held.user_code if held is not None else True
    if held is not None:
        held.user_code = False
    try:
        yield
    finally:
        if held is not None:
            held.user_code = before
        if taken:
            remove()
