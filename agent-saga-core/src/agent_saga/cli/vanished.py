"""Sagas that the state store knows of and the log has lost as a whole, for the commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_saga.domain import identity
from agent_saga.recovery.proofs import Proofs
from agent_saga.recovery.survey import look
from agent_saga.recovery.vanished import KnownSagas
from agent_saga.state.address import open_state

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

    from agent_saga.recovery.survey import Found

__all__ = ["lost_of", "meant", "vanished"]


def vanished(path: Path, there: Collection[str]) -> list[Found]:
    """Return the vanished sagas of a log.

    Args:
        path: the log.
        there: the sagas of which it tells.

    Raises:
        StateError: the state store cannot be read.
    """
    with open_state(f"file:{path}") as store:
        return Proofs(KnownSagas(lambda: store)).vanished(str(path), there)


def lost_of(path: Path, saga: str) -> str:
    """Return what the log has lost of a saga of which it tells; empty if nothing is known.

    Raises:
        StateError: the state store cannot be read.
    """
    found = look(str(path), saga)
    if found is None:
        return ""
    with open_state(f"file:{path}") as store:
        return Proofs(KnownSagas(lambda: store)).proved(str(path), found).lost


def meant(found: Iterable[Found], wanted: str) -> Found | None:
    """Return the vanished saga that a person means: its id, its `saga_id`, or its beginning."""
    gone = [one for one in found if one.vanished]
    exact = [one for one in gone if one.id in (wanted, identity.saga_id_of(wanted))]
    near = exact or [one for one in gone if one.id.startswith(wanted)]
    return near[0] if len(near) == 1 else None
