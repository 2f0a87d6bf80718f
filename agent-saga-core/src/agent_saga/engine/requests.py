"""What a protocol asks of its driver, and what it is answered.

Rules of this part:

- A protocol is a generator. It yields requests and is sent answers; nothing is ever thrown into it,
  and it yields nothing inside `except` or `finally`.
- `Call` is answered with an `Ending`. Every other request is answered with None, or with the
  exception that cut it short (a cancellation, a stalled log), as a value.
- A driver carries a request out completely even when its caller is cancelled meanwhile, and answers
  with the cancellation afterwards; only a `Call` passes a cancellation on to what it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from agent_saga.engine.step import Step

T = TypeVar("T")


class Ending:
    """How one call ended.

    Attributes:
        value: what it returned.
        error: what it raised, or None.
        running: it was given up while it goes on in a thread; its real ending comes later.
        started: the function was really called.
    """

    __slots__ = ("error", "running", "started", "value")

    def __init__(
        self,
        value: Any = None,
        error: BaseException | None = None,
        *,
        running: bool = False,
        started: bool = True,
    ) -> None:
        self.value = value
        self.error = error
        self.running = running
        self.started = started


class Call:
    """Run one function of the user.

    Attributes:
        fn, args, kwargs: the call.
        is_async: calling it is known to return an awaitable.
        timeout: seconds until it is given up, or None.
        late: told the real ending of a call that was given up while it was running.
        loop_free: an awaitable of it may run on a private loop when there is none.
        pooled: a synchronous function may run on a thread of the pool.
        what: how messages name it.
    """

    __slots__ = (
        "args",
        "fn",
        "is_async",
        "kwargs",
        "late",
        "loop_free",
        "pooled",
        "timeout",
        "what",
    )

    def __init__(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        is_async: bool = False,
        timeout: float | None = None,
        late: Callable[[Ending], None] | None = None,
        loop_free: bool = False,
        pooled: bool = True,
        what: str = "",
    ) -> None:
        self.fn = fn
        self.args = args
        self.kwargs = kwargs if kwargs is not None else {}
        self.is_async = is_async
        self.timeout = timeout
        self.late = late
        self.loop_free = loop_free
        self.pooled = pooled
        self.what = what


class Durable:
    """Wait until this record is durable."""

    __slots__ = ("seq",)

    def __init__(self, seq: int) -> None:
        self.seq = seq


class HandedOver:
    """Wait until this record is in the operating system's hands.

    Attributes:
        seq: the record's sequence.
        sync: start its sync at once, without waiting for it.
    """

    __slots__ = ("seq", "sync")

    def __init__(self, seq: int, *, sync: bool = True) -> None:
        self.seq = seq
        self.sync = sync


class Sleep:
    """Wait for a while.

    Attributes:
        seconds: how long.
    """

    __slots__ = ("seconds",)

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


class StepEnded:
    """Wait until a step is no longer in flight, at most so many seconds."""

    __slots__ = ("step", "timeout")

    def __init__(self, step: Step, timeout: float) -> None:
        self.step = step
        self.timeout = timeout


Request = Call | Durable | HandedOver | Sleep | StepEnded
Protocol = Generator[Request, Any, T]


class Outcome:
    """What a step gives to its caller: a value, or an error to raise as it is."""

    __slots__ = ("error", "value")

    def __init__(self, value: Any = None, error: BaseException | None = None) -> None:
        self.value = value
        self.error = error
