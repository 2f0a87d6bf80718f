"""What a protocol asks of its driver, and what it is answered.

Rules of this part:

- A protocol is a generator. It yields requests and is sent answers; nothing is ever thrown into it,
  and it yields nothing inside `except` or `finally`.
- `Call` and `Use` are answered with an `Ending`. Every other request is answered with None, or with
  the exception that cut it short (a cancellation, a stalled log), as a value.
- A driver carries a request out completely even when its caller is cancelled meanwhile, and answers
  with the cancellation afterwards; only a `Call` passes a cancellation on to what it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from agent_saga.controls.control import Use

if TYPE_CHECKING:
    from agent_saga.engine.in_hand import InHand
    from agent_saga.engine.step import Step

T = TypeVar("T")


class Ending(Struct, eq=False):
    """How one call ended.

    Attributes:
        value: what it returned.
        error: what it raised, or None.
        running: it was given up while it goes on in a thread; its real ending comes later.
        started: the function was really called.
        apart: it ended on a thread of its own: what it raised ends nothing else.
    """

    value: Any = None
    error: BaseException | None = None
    running: bool = False
    started: bool = True
    apart: bool = False


def first_of(one: BaseException | None, other: BaseException) -> BaseException:
    """Return the first of two errors that is there; one may count as false."""
    return other if one is None else one


class Call(Struct, eq=False):
    """Run one function of the user.

    Attributes:
        fn, args, kwargs: the call.
        is_async: calling it is known to return an awaitable.
        timeout: seconds until it is given up, or None.
        late: told the real ending of a call that was given up while it was running.
        loop_free: an awaitable of it may run on a private loop when there is none.
        pooled: a synchronous function may run on a thread of the pool.
        what: how messages name it.
        stopped: asked on the pool's thread, when the call's turn has come; what it returns keeps
            the call from being made.
    """

    fn: Callable[..., Any]
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = {}
    is_async: bool = False
    timeout: float | None = None
    late: Callable[[Ending], None] | None = None
    loop_free: bool = False
    pooled: bool = True
    what: str = ""
    stopped: Callable[[], BaseException | None] | None = None


class Durable(Struct, eq=False, gc=False):
    """Wait until this record is durable."""

    seq: int


class HandedOver(Struct, eq=False, gc=False):
    """Wait until this record is in the operating system's hands.

    Attributes:
        seq: the record's sequence.
        sync: start its sync at once, without waiting for it.
        asked: `hand_over` was asked for that already, and left the record to a batch.
    """

    seq: int
    sync: bool = True
    asked: bool = False


class Sleep(Struct, eq=False, gc=False):
    """Wait for a while.

    Attributes:
        seconds: how long.
    """

    seconds: float


class StepEnded(Struct, eq=False):
    """Wait until a step is no longer in flight, at most so many seconds; so with an undoing."""

    step: Step | InHand
    timeout: float


Request = Call | Use | Durable | HandedOver | Sleep | StepEnded
Protocol = Generator[Request, Any, T]


class Outcome(Struct, eq=False):
    """What a step gives to its caller: a value, or an error to raise as it is."""

    value: Any = None
    error: BaseException | None = None
