"""What one call takes of its counts, in one transaction: all that it asks for, or nothing.

Pure over the documents of the counts: it is the rule of a transaction, and run again if it must be.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

from msgspec import Struct

from agent_saga.controls.amounts import add, text_of
from agent_saga.controls.control import CallView
from agent_saga.controls.limits.asked import Asked, SharedTaken, name_of
from agent_saga.controls.limits.count import Count
from agent_saga.controls.limits.leases import Borrowing, Lease
from agent_saga.controls.limits.moments import Moment
from agent_saga.controls.limits.usage import Over, over
from agent_saga.domain.semantics import ActionSemantics
from agent_saga.state.base import Change, Docs

__all__ = ["Answer", "take"]

_REVERSIBLE: Final = ActionSemantics.REVERSIBLE


class Answer(Struct, frozen=True):
    """What a transaction decided.

    Attributes:
        taken: what the call holds now. overs: the limits that it is over; one of them is empty.
        begun: the leases that were taken with it, by the keys of their counts.
        lent: what others have leased of the counts that the call is over.
    """

    taken: Sequence[SharedTaken]
    overs: Sequence[Over]
    begun: Mapping[str, Lease]
    lent: AbstractSet[str] = frozenset()


def take(
    call: CallView,
    asked: Sequence[Asked],
    settled: Mapping[str, Sequence[str]],
    borrowing: Borrowing,
    now: Callable[[], Moment],
    writer: Callable[[], str],
    docs: Docs,
) -> Change[Answer]:
    """Take all that a call asks for, or nothing if it is over a limit.

    Args:
        call: the call.
        asked: what it asks of each count.
        settled: the calls whose announcements are out, by count; they need no name any more.
        borrowing: the leases that end, and what may be leased with it.
        now: reads the clock.
        writer: tells who takes it.
        docs: the counts' documents.

    Returns:
        What was taken, or the limits that the call is over.
    """
    moment = now()
    name = name_of(call.saga, call.step, call.generation)
    counts = [Count(docs[one.key], moment, one.limit.window) for one in asked]
    back = [borrowing.hand_back(one.key, count) for one, count in zip(asked, counts, strict=True)]
    overs = _overs(name, call.approved, asked, counts)
    put: dict[str, Any] = {}
    if overs:
        for one, count, changed in zip(asked, counts, back, strict=True):
            if changed:
                put[one.key] = count.document()
        return Change(Answer([], overs, {}, borrowing.lent(counts)), put)
    stays = call.semantics is _REVERSIBLE
    taker = writer()
    begun: dict[str, Lease] = {}
    for one, count in zip(asked, counts, strict=True):
        for old in settled[one.key]:
            count.settle(old)
        most = text_of(one.limit.most)
        count.about = {"limit": one.limit.name, "scope": one.label, "most": most}
        count.take(name, one.amount, taker, stays=stays)
        lease = borrowing.lease(one, count, moment, taker)
        if lease is not None:
            begun[one.key] = lease
        put[one.key] = count.document()
    return Change(Answer([one.taken for one in asked], [], begun), put)


def _overs(
    name: str, approved: Container[str], asked: Sequence[Asked], counts: Sequence[Count]
) -> list[Over]:
    """Return the limits that a call would go over; what a human approved, or it holds, is none."""
    return [
        over(one.limit, one.scope, one.amount, count.window, count.axis.now)
        for one, count in zip(asked, counts, strict=True)
        if name not in count.held
        and one.limit.name not in approved
        and add(count.used, one.amount) > one.limit.most
    ]
