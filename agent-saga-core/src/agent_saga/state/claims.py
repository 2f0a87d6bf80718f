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
  ended is given back as ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from agent_saga.errors import StateError

if TYPE_CHECKING:
    from agent_saga.state.document import Doc

__all__ = [
    "FIRST_EPOCH",
    "Claim",
    "claim_key",
    "clear",
    "is_owner",
    "open_saga",
    "raise_epoch",
    "rebuild",
    "release",
]

FIRST_EPOCH: Final = 1
"""The epoch of a saga that was never taken over."""


class Claim(NamedTuple):
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
    doc: Doc | None, *, owner: str, epoch: int, deadline: int | None = None
) -> tuple[Doc | None, Claim]:
    """Give a saga back so that another process may take it over or resume it.

    Args:
        doc: the saga's document.
        owner: who gives it back.
        epoch: under which epoch.
        deadline: for a suspended saga, when its time is over: microseconds since the epoch.
    """
    return _give_back(doc, owner, epoch, deadline=deadline, ended=False)


def clear(doc: Doc | None, *, owner: str, epoch: int) -> tuple[Doc | None, Claim]:
    """End the claim on a saga whose terminal record is durable; its epoch is kept."""
    return _give_back(doc, owner, epoch, deadline=None, ended=True)


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
    doc: Doc | None, owner: str, epoch: int, *, deadline: int | None, ended: bool
) -> tuple[Doc | None, Claim]:
    if not is_owner(doc, owner=owner, epoch=epoch):
        return doc, _refused(doc)
    ended = ended or (doc is not None and bool(doc["ended"]))
    return _document(None, epoch, deadline=deadline, ended=ended), Claim(True, epoch, None)


def _owned(owner: str, epoch: int) -> Doc:
    return _document(owner, epoch, deadline=None, ended=False)


def _document(owner: str | None, epoch: int, *, deadline: int | None, ended: bool) -> Doc:
    return {"epoch": epoch, "owner": owner, "deadline": deadline, "ended": ended}


def _refused(doc: Doc | None) -> Claim:
    return Claim(False, 0, None) if doc is None else Claim(False, doc["epoch"], doc["owner"])
