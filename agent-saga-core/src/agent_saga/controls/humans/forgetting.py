"""Forgetting what was asked and granted long ago; the log keeps what was decided.

Rules of this part:

- A document is forgotten when its own rules say that nobody can come back to it. One that cannot be
  understood is a person's case, and stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from agent_saga.controls.humans import document, grants
from agent_saga.errors import StateError
from agent_saga.state.base import Change

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_saga.state.base import Docs, Rule, StateStore
    from agent_saga.state.document import Doc

__all__ = ["forget_old"]

_AT_ONCE: Final = 50

_Old: TypeAlias = "Callable[..., bool]"
_OLD: Final[tuple[tuple[str, _Old], ...]] = (
    (document.PREFIX, document.forgettable),
    (grants.PREFIX, grants.forgettable),
)


def forget_old(state: StateStore, *, now: int) -> int:
    """Forget the documents that were over long ago; return how many. Blocks.

    Args:
        state: where they are.
        now: the wall clock, in microseconds.

    Raises:
        StateError: the store cannot be read or written.
    """
    forgotten = 0
    for prefix, old in _OLD:
        keys = [key for key, doc in state.scan(prefix) if _is_old(old, doc, now)]
        for at in range(0, len(keys), _AT_ONCE):
            some = keys[at : at + _AT_ONCE]
            forgotten += state.transact(some, _forgetting(old, now), durable=False)
    return forgotten


def _is_old(old: _Old, doc: Doc, now: int) -> bool:
    """Say whether a document can be forgotten; one that cannot be understood is a person's case."""
    try:
        return old(doc, now=now)
    except StateError:
        return False


def _forgetting(old: _Old, now: int) -> Rule[int]:
    def rule(docs: Docs) -> Change[int]:
        gone = {
            key: None for key, doc in docs.items() if doc is not None and _is_old(old, doc, now)
        }
        return Change(len(gone), gone)

    return rule
