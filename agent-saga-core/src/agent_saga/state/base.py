"""The port of the state store: atomic updates of small documents by pure rules.

Rules of this part:

- A rule is a pure function: it gets the documents it named and returns a `Change`. It may be called
  again with other documents before its change is stored, so it has no effect of its own.
- A transaction is all or nothing over every document it names. A rule that raises changes nothing,
  and what it raised leaves `transact` as it came.
- Every wait has a bound. `StateUnavailable` says whether the change was certainly not made; an
  unknown ending is why every use of a store is idempotent, or may be skipped and done again.
- Nobody is told an answer before the change is stored as durably as was asked.
- Which way a failure goes is decided by whoever asks: a limit refuses, a breaker lets through.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from agent_saga.errors import StateError
from agent_saga.state.document import Doc, check_key, decode, encode

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

__all__ = ["Capabilities", "Change", "Doc", "Docs", "Rule", "StateStore", "judge", "one"]

T = TypeVar("T")

Docs: TypeAlias = Mapping[str, Doc | None]
"""The documents that a rule named, by key; None for one that does not exist."""


class Change(NamedTuple, Generic[T]):
    """What a rule decided: its answer, and the documents to store.

    Args:
        answer: what `transact` returns to its caller.
        put: documents by key, None to remove one; only keys that the transaction named.
    """

    answer: T
    put: Mapping[str, Doc | None] = {}


Rule: TypeAlias = Callable[[Docs], Change[T]]


class Capabilities(NamedTuple):
    """What a state store can promise.

    Args:
        durability: "disk" when a durable transaction survives a power loss, else "memory".
        survives_kill: what was answered survives the death of the process.
        multi_process: several processes of one host share the store.
        multi_host: several hosts share the store.
    """

    durability: Literal["disk", "memory"]
    survives_kill: bool
    multi_process: bool
    multi_host: bool


class StateStore(ABC):
    """A store of small documents whose updates are atomic.

    Crash: an answered durable transaction survives what `capabilities` says; one that was not
    answered happened as a whole or not at all. Fails closed: an error is raised, never a default.
    """

    address: str
    capabilities: Capabilities

    @abstractmethod
    def transact(
        self,
        keys: Sequence[str],
        rule: Rule[T],
        *,
        durable: bool = True,
        timeout: float | None = None,
    ) -> T:
        """Apply a rule to the named documents, atomically, and return its answer.

        Args:
            keys: the documents that the rule reads and may change.
            rule: the pure decision; it may be called more than once.
            durable: True waits until the change survives a power loss (grants, claims, epochs,
                switches); False until it survives the process (debits and reservations).
            timeout: seconds to wait; None takes the bound of the store.

        Raises:
            StateUnavailable: no answer within the bound; the message says what is known.
            StateError: the store cannot be read or written, or is closed.
            NotRecordable: a key or a document cannot be carried exactly; nothing was changed.
        """

    @abstractmethod
    async def async_transact(
        self,
        keys: Sequence[str],
        rule: Rule[T],
        *,
        durable: bool = True,
        timeout: float | None = None,
    ) -> T:
        """Do what `transact` does without blocking the event loop.

        A cancelled call is not made if it had not begun; otherwise it ends unseen.
        """

    @abstractmethod
    def get(self, key: str, *, timeout: float | None = None) -> Doc | None:
        """Return one document, or None; reading creates nothing.

        Raises:
            StateUnavailable: no answer within the bound.
            StateError: the store cannot be read, or is closed.
        """

    @abstractmethod
    async def async_get(self, key: str, *, timeout: float | None = None) -> Doc | None:
        """Do what `get` does without blocking the event loop."""

    @abstractmethod
    def scan(self, prefix: str = "", *, timeout: float | None = None) -> list[tuple[str, Doc]]:
        """Return the documents whose keys begin with a prefix, by key, as of one moment.

        Raises:
            StateUnavailable: no answer within the bound.
            StateError: the store cannot be read, or is closed.
        """

    @abstractmethod
    def close(self) -> None:
        """End the use of the store; closing again does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def one(key: str, rule: Callable[[Doc | None], tuple[Doc | None, T]]) -> Rule[T]:
    """Turn a rule over one document into a rule of a transaction.

    Args:
        key: the document.
        rule: gets the document or None; returns what to store (None removes it) and the answer.
    """

    def over_docs(docs: Docs) -> Change[T]:
        doc, answer = rule(docs[key])
        return Change(answer, {key: doc})

    return over_docs


def judge(
    rule: Rule[T], stored: Mapping[str, bytes | None], *, where: str
) -> tuple[T, dict[str, bytes | None]]:
    """Apply a rule to stored forms; return its answer and the stored forms that change.

    The one place where a backend turns bytes into documents and back. A document that the rule
    leaves equal is not among the changes, so a refused claim costs no write.

    Args:
        rule: the decision.
        stored: the stored form of every document that the transaction named.
        where: the store's address, for messages.

    Raises:
        StateError: a stored form is damaged, the rule returned no `Change`, or it put a key that
            the transaction had not named.
        NotRecordable: a new document cannot be carried exactly.
    """
    docs = {
        key: None if body is None else decode(body, where=f"{key!r} in {where}")
        for key, body in stored.items()
    }
    change = rule(docs)
    if not isinstance(change, Change):
        raise StateError(f"A rule returned {type(change).__qualname__} where a Change is due.")
    answer, put = change
    changes: dict[str, bytes | None] = {}
    for key, doc in put.items():
        if key not in stored:
            raise StateError(f"A rule put the document {check_key(key)!r} that it had not named.")
        body = None if doc is None else encode(doc)
        if body != stored[key]:
            changes[key] = body
    return answer, changes
