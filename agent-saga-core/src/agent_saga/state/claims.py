"""The rules for a saga's owner: who may act on it, and under which epoch.

Rules of this part:

- Pure functions over one document per saga. Each returns what to store and a `Claim`; use them with
  `base.one` in a durable transaction.
- An epoch is granted once. Only a process that saw epoch e may raise it, and of all that saw it one
  gets e + 1. Epochs may skip (a claimer may die before it says so in the log), never repeat; so a
  document is kept when its saga has ended, and no call is taken for a repetition of an earlier one.
- A document that does not exist belongs to a saga that nobody took over: its epoch is the log's.
  A document below the log's epoch means that the store lost something; it is refused until rebuilt.
- Whether the owner is dead is judged before, with the lock held or the deadline passed. Whatever
  makes that judgement old raises the epoch, and the raise is then refused.
- An owner gives back under its own epoch only; a fenced one changes nothing. What was taken over as
  ended is given back as ended. Who gives back names the record that says so, where one does: a log
  that does not have it has lost records.
- Beside the claim stands a mark, for as long as the saga is not known to have ended with nothing
  left to do (`over`): so that it is found although the log tells nothing of it any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import asdict

from agent_saga.errors import StateError
from agent_saga.state.base import Change

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_saga.state.base import Docs, Rule
    from agent_saga.state.document import Doc

__all__ = [
    "FIRST_EPOCH",
    "OPEN",
    "Claim",
    "Last",
    "claim_key",
    "clear",
    "is_owner",
    "keys_of",
    "open_saga",
    "over",
    "raise_epoch",
    "rebuild",
    "release",
    "suspend",
    "unmarked",
]

FIRST_EPOCH: Final = 1
"""The epoch of a saga that was never taken over."""

OPEN: Final = "open/"
"""What the keys of the marks of sagas begin with that are not known to have ended."""


class Last(Struct, frozen=True):
    """The record by which an owner gave a saga back.

    Args:
        writer: who wrote it.
        seq: its place in that writer's log.
    """

    writer: str
    seq: int


class Claim(Struct, frozen=True):
    """The answer to a claim, and what now holds.

    Args:
        granted: whether the caller got, or gave back, what it asked for.
        epoch: the saga's epoch now; 0 if the store does not know the saga.
        owner: who owns the saga now; None if nobody does.
    """

    granted: bool
    epoch: int
    owner: str | None


def claim_key(saga: str) -> str:
    """Return the key of a saga's claim document."""
    return f"claim/{saga}"


def keys_of(saga: str) -> list[str]:
    """Return the keys of a saga's claim and of its mark, which `over` changes together."""
    return [claim_key(saga), f"{OPEN}{saga}"]


def over(
    saga: str,
    rule: Callable[[Doc | None], tuple[Doc | None, Claim]],
    *,
    records: bool | None = None,
    settled: bool = True,
) -> Rule[Claim]:
    """Turn a rule over a claim into one that keeps the saga's mark with it; for `keys_of`.

    Args:
        saga: the saga's id.
        rule: one of the rules of this module.
        records: the log holds records of the saga that nobody may take out before it has ended; as
            it was known before when None.
        settled: if it has ended, then with nothing left to do about it.
    """
    claim, mark = keys_of(saga)

    def over_docs(docs: Docs) -> Change[Claim]:
        doc, answer = rule(docs[claim])
        if not answer.granted:
            return Change(answer)
        if doc is None or (doc["ended"] and settled):
            return Change(answer, {claim: doc, mark: None})
        before = docs[mark]
        known = bool(before is not None and before.get("records"))
        told = {"owner": doc["owner"], "epoch": doc["epoch"]}
        put = {**told, "records": known if records is None else records}
        return Change(answer, {claim: doc, mark: put})

    return over_docs


def unmarked(saga: str, *, owner: str, epoch: int) -> Rule[bool]:
    """Return the rule that takes a saga's mark away, as nothing of it was recorded.

    Its claim stays as it is: the id goes on from there. Answers whether it was this owner's.

    Args:
        saga: the saga's id.
        owner: who had it.
        epoch: under which epoch.
    """
    claim, mark = keys_of(saga)

    def over_docs(docs: Docs) -> Change[bool]:
        mine = is_owner(docs[claim], owner=owner, epoch=epoch)
        return Change(mine, {mark: None} if mine else {})

    return over_docs


def open_saga(doc: Doc | None, *, owner: str, epoch: int = FIRST_EPOCH) -> tuple[Doc | None, Claim]:
    """Claim a saga that begins; refused if its id was ever used.

    Args:
        doc: the saga's document.
        owner: an opaque name of the process, for example its writer id.
        epoch: the first epoch.
    """
    if doc is not None:
        return doc, _refused(doc)
    return _owned(owner, epoch), Claim(True, epoch, owner)


def raise_epoch(
    doc: Doc | None, *, owner: str, seen: int, ended: bool = False
) -> tuple[Doc | None, Claim]:
    """Take a saga over: raise its epoch from `seen` to `seen + 1`, if it still is `seen`.

    Args:
        doc: the saga's document.
        owner: an opaque name of the claimer.
        seen: the epoch that the claimer saw, in the store or, without a document, in the log.
        ended: it stays known as ended, whatever becomes of the claimer.

    Raises:
        StateError: the store is behind the log; it may not be used before it is rebuilt.
    """
    if doc is not None and doc["epoch"] < seen:
        raise StateError(
            f"The state store knows epoch {doc['epoch']} of a saga whose log says {seen}; "
            "the store is behind the log.",
            fix="Rebuild the saga's claim from the log before it is claimed.",
        )
    if doc is not None and doc["epoch"] != seen:
        return doc, _refused(doc)
    made = _document(owner, seen + 1, deadline=None, ended=ended)
    return made, Claim(True, seen + 1, owner)


def is_owner(doc: Doc | None, *, owner: str, epoch: int) -> bool:
    """Say whether this owner still acts under its own epoch; False if nothing is known."""
    return doc is not None and doc["owner"] == owner and doc["epoch"] == epoch


def release(
    doc: Doc | None,
    *,
    owner: str,
    epoch: int,
    deadline: int | None = None,
    last: Last | None = None,
) -> tuple[Doc | None, Claim]:
    """Give a saga back so that another process may take it over or resume it.

    Args:
        doc: the saga's document.
        owner: who gives it back.
        epoch: under which epoch.
        deadline: for a suspended saga, when its time is over: microseconds since the epoch.
        last: the record that says so.
    """
    return _give_back(doc, owner, epoch, deadline=deadline, ended=False, last=last)


def suspend(
    doc: Doc | None, *, owner: str, epoch: int, deadline: int, last: Last
) -> tuple[Doc | None, Claim]:
    """Give a suspended saga back, also one that the store has not heard of.

    Args:
        doc: the saga's document.
        owner: who suspended it.
        epoch: under which epoch.
        deadline: when its time is over, in microseconds since the epoch.
        last: the record that says so.
    """
    if doc is None and epoch == FIRST_EPOCH:
        made = _document(None, epoch, deadline=deadline, ended=False, last=last)
        return made, Claim(True, epoch, None)
    return release(doc, owner=owner, epoch=epoch, deadline=deadline, last=last)


def clear(
    doc: Doc | None, *, owner: str, epoch: int, last: Last | None = None
) -> tuple[Doc | None, Claim]:
    """End the claim on a saga whose terminal record is durable; its epoch is kept.

    Args:
        doc: the saga's document.
        owner: who ended it.
        epoch: under which epoch.
        last: the record that says so.
    """
    return _give_back(doc, owner, epoch, deadline=None, ended=True, last=last)


def rebuild(doc: Doc | None, *, seen: int) -> tuple[Doc | None, Claim]:
    """Bring a claim that is behind the log up to the log's epoch, owned by nobody.

    Args:
        doc: the saga's document.
        seen: the epoch that the log says.
    """
    if doc is not None and doc["epoch"] >= seen:
        return doc, _refused(doc)
    return _document(None, seen, deadline=None, ended=False), Claim(True, seen, None)


def _give_back(
    doc: Doc | None,
    owner: str,
    epoch: int,
    *,
    deadline: int | None,
    ended: bool,
    last: Last | None,
) -> tuple[Doc | None, Claim]:
    if not is_owner(doc, owner=owner, epoch=epoch):
        return doc, _refused(doc)
    ended = ended or (doc is not None and bool(doc["ended"]))
    made = _document(None, epoch, deadline=deadline, ended=ended, last=last)
    return made, Claim(True, epoch, None)


def _owned(owner: str, epoch: int) -> Doc:
    return _document(owner, epoch, deadline=None, ended=False)


def _document(
    owner: str | None, epoch: int, *, deadline: int | None, ended: bool, last: Last | None = None
) -> Doc:
    made: Doc = {"epoch": epoch, "owner": owner, "deadline": deadline, "ended": ended}
    if last is not None:
        made["last"] = asdict(last)
    return made


def _refused(doc: Doc | None) -> Claim:
    return Claim(False, 0, None) if doc is None else Claim(False, doc["epoch"], doc["owner"])
