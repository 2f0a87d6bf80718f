"""Ctrl-C and other signals in a synchronous boundary: never in the middle of the engine's work.

Rules of this part:

- While a synchronous boundary is open in the main thread, signals that Python code handles are
  taken: SIGINT with Python's own handler, and those that programs use to end themselves or to bound
  a time, with theirs. The program's handler answers each at once. What it raises passes only while
  the user's code runs; otherwise this interrupt is kept and raised when the engine hands control
  back.
- During unwinding the first interrupt is kept; a second one ends the unwinding, and the saga is
  released to recovery.
- Whoever acts on sagas of others keeps every interrupt from the claim to its end, and looks at
  `asked_to_stop` before each inverse: the first one lets the inverse that runs come to its end.
- Code that opens, leaves or calls is the engine's too, although it is on the user's stack: it is
  marked with `engine_code`, and the handler looks for it.
- Other threads are left alone, and so is a handler that the program puts in place later on.
- A boundary that was entered in the main thread may be left in another one, as a generator's is,
  where no signal can be given back: the main thread does that when it comes by.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any, Final, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

SIGNALS: Final = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGALRM", "SIGBREAK")
    if hasattr(signal, name)
)
"""What programs end themselves with, or bound a time with."""

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
        kept: those that came meanwhile.
        installed: how many open boundaries have taken the signals over.
        elsewhere: for each boundary of those that was left in another thread, something.
        thread: the main thread's id.
        before: the handlers of the program that answer, by signal.
        ignored: SIGINT is ignored all the while.
    """

    __slots__ = ("before", "elsewhere", "ignored", "installed", "kept", "thread", "user_code")

    def __init__(self) -> None:
        self.installed = 0
        self.elsewhere: list[None] = []
        self.thread = 0
        self.user_code = True
        self.ignored = False
        self.kept: list[BaseException] = []
        self.before: dict[int, Callable[[int, FrameType | None], Any]] = {}

    def handle(self, signum: int, frame: FrameType | None) -> None:
        """Let the program's handler answer a signal; keep what it raises in the engine's work."""
        answer = self.before.get(signum, signal.default_int_handler)
        if self.elsewhere and not _left_elsewhere():
            answer(signum, frame)
            return
        try:
            answer(signum, frame)
        except BaseException as error:
            if self.user_code and not _in_engine(frame):
                raise
            self.kept.append(error)

    def taken(self) -> BaseException | None:
        """Return the kept interrupt, and forget it: what ends the program before anything else."""
        if not self.kept:
            return None
        kept, self.kept = self.kept, []
        return next((one for one in kept if not isinstance(one, Exception)), kept[0])


main = Interrupts()


def here() -> Interrupts | None:
    """Return the main thread's interrupts if this is the main thread and they are in our hands."""
    if main.installed and threading.get_ident() == main.thread:
        return main
    return None


def install(*, ignored: bool = False) -> bool:
    """Take the signals over; return whether that was done and must be undone with `remove`.

    Args:
        ignored: also where SIGINT is ignored, as in the background of a shell; it stays ignored,
            and other signals can be kept.
    """
    if threading.current_thread() is not threading.main_thread():
        return False
    if main.elsewhere:
        _left_elsewhere()
    if not main.installed:
        before = {number: _program_s(number) for number in SIGNALS}
        main.before = {number: one for number, one in before.items() if callable(one)}
        main.ignored = ignored and before[signal.SIGINT] is signal.SIG_IGN
        if not (main.before or main.ignored):
            return False
        main.user_code, main.kept = True, []
        try:
            for number in main.before:
                signal.signal(number, main.handle)
        except BaseException:  # one that was not taken yet
            _give_back()
            raise
    main.installed += 1
    main.thread = threading.get_ident()
    return True


def _program_s(number: int) -> Any:
    """Return the program's handler, also where it has put ours in place again itself."""
    found = signal.getsignal(number)
    return main.before.get(number, found) if found == main.handle else found


def remove() -> None:
    """Give the signals back to the program's handlers when the last boundary has ended.

    Raises:
        BaseException: an interrupt came after the engine's last look.
    """
    if threading.get_ident() != main.thread:
        main.elsewhere.append(None)
        return
    main.installed -= 1
    if main.elsewhere:
        _left_elsewhere()
    elif not main.installed:
        _give_back()
    kept = None if main.installed else main.taken()
    if kept is not None:
        raise kept


def _left_elsewhere() -> int:
    """Take into account what other threads have left; return how many boundaries stay open."""
    with contextlib.suppress(IndexError):
        while True:
            main.elsewhere.pop()
            main.installed -= 1
    if not main.installed:
        _give_back()
    return main.installed


def _give_back() -> None:
    """Put the program's handlers in place again; one that is there again may raise meanwhile."""
    while True:
        try:
            for number, handler in main.before.items():
                if signal.getsignal(number) == main.handle:
                    signal.signal(number, handler)
        except BaseException as error:
            main.kept.append(error)
        else:
            return


def asked_to_stop() -> bool:
    """Say whether an interrupt is kept on this thread."""
    held = here()
    return held is not None and bool(held.kept)


def keep(interrupt: BaseException) -> None:
    """Keep an interrupt that was taken, so that what comes after it stops too."""
    held = here()
    if held is not None:
        held.kept.append(interrupt)


def raise_kept() -> None:
    """Raise the interrupt that `kept` keeps, where what it interrupts can still be given up.

    Raises:
        BaseException: one came, and nobody outside keeps them.
    """
    held = here()
    interrupt = held.taken() if held is not None and held.installed == 1 else None
    if interrupt is not None:
        raise interrupt


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """Keep every interrupt for the length of the block.

    Raises:
        BaseException: at its end, the one that came, if nobody outside of it keeps them.
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
