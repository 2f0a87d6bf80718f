"""What has to stand in the document of a request, and where a request stands.

Rules of this part:

- A document that cannot be understood is damaged, whoever reads it. So is one that says yes and
  names nobody who said so, or no end.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

from msgspec import Struct, ValidationError, convert

from agent_saga.controls.humans.names import blank
from agent_saga.errors import StateError

if TYPE_CHECKING:
    from agent_saga.state.document import Doc

__all__ = ["State", "state_of"]


class State(Enum):
    """Where a request stands."""

    PENDING = "PENDING"
    GRANTED = "GRANTED"
    DENIED = "DENIED"
    EXPIRED = "EXPIRED"
    USED = "USED"


class _Decision(Struct):
    by: str
    note: str
    at: int
    break_glass: bool


class _Form(Struct):
    """What has to stand in the document of a request."""

    id: str
    saga: str
    step: str
    gen: int
    tool: str
    rule: str
    reason: str
    arguments: str
    requesters: list[str]
    state: State
    asked: int
    deadline: int
    valid: int
    approvers: list[str]
    signatures: int
    keys: dict[str, dict[str, Any]]
    signed: dict[str, str]
    level: int
    decision: _Decision | None
    until: int | None
    used: int | None
    review: str | dict[str, Any] | None
    clocks: tuple[int, float, str] | None = None


def state_of(doc: Doc) -> State:
    """Return where a request stands.

    Raises:
        StateError: the document cannot be understood.
    """
    try:
        found = convert(doc, _Form)
    except ValidationError as error:
        raise _damaged(str(error)) from error
    given = found.decision is not None and not blank(found.decision.by)
    if found.state in (State.GRANTED, State.USED) and not (given and found.until is not None):
        raise _damaged("it is approved, and nobody has approved it, or without an end")
    return found.state


def _damaged(how: str) -> StateError:
    return StateError(
        f"The document of a request for approval is damaged: {how}.",
        fix="The call that asked is refused; look who can write the state store.",
    )
