"""The lifecycle tables: which record may follow which, for a step, a saga and a savepoint.

Every record goes through these tables, in the process that writes it and in every reader. What a
table does not list is illegal: a writer raises `IllegalTransition`, a reader hands the saga to a
human.

Step: an intent without outcome is UNKNOWN; the record of it is a courtesy. A REVERSIBLE step is one
record written after its effect, so it starts at its outcome. UNKNOWN becomes COMMITTED or
NOT_APPLIED when a prober or a late arrival tells. Only COMMITTED and UNKNOWN steps, and those whose
inverse did not succeed, go to COMPENSATING. An inverse whose ending is in doubt is COMPENSATED when
somebody sees that it holds, wherever the step stands by then. A late arrival after an end shows an
effect that stands: the step is COMMITTED again, or UNRESOLVED when its inverse had run already.
Closing a step or a saga is a named human's act. A claim changes who acts, never where the saga
stands.
Of a committed saga the steps after a point may be undone: then it is committed again, up to there;
so it is once a person has closed what could not be undone of them.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, TypeVar

from agent_saga.domain.records import Ev
from agent_saga.errors import IllegalTransition


class _ByIdentity(Enum):
    """A state; it hashes by identity, which is what it is compared by, and quick."""

    __hash__ = object.__hash__


class StepState(_ByIdentity):
    """Where one step stands."""

    NEW = "NEW"
    INTENT = "INTENT"
    COMMITTED = "COMMITTED"
    NOT_APPLIED = "NOT_APPLIED"
    UNKNOWN = "UNKNOWN"
    COMPENSATING = "COMPENSATING"
    COMPENSATED = "COMPENSATED"
    COMPENSATION_NOT_APPLIED = "COMPENSATION_NOT_APPLIED"
    COMPENSATION_UNKNOWN = "COMPENSATION_UNKNOWN"
    COMPENSATION_FAILED = "COMPENSATION_FAILED"
    ORPHANED = "ORPHANED"
    UNRESOLVED = "UNRESOLVED"
    KEPT = "KEPT"
    CLOSED = "CLOSED"


class SagaState(_ByIdentity):
    """Where one saga stands."""

    NEW = "NEW"
    RUNNING = "RUNNING"
    COMMITTED = "COMMITTED"
    SUSPENDED = "SUSPENDED"
    RELEASED = "RELEASED"
    UNWINDING = "UNWINDING"
    ROLLED_BACK = "ROLLED_BACK"
    PARTIAL = "PARTIAL"
    STUCK = "STUCK"
    REOPENED = "REOPENED"
    CLOSED = "CLOSED"


class ScopeState(_ByIdentity):
    """Where one savepoint stands."""

    NEW = "NEW"
    OPEN = "OPEN"
    LEFT = "LEFT"
    UNWINDING = "UNWINDING"
    UNDONE = "UNDONE"
    PARTIAL = "PARTIAL"
    STUCK = "STUCK"


_S = StepState
_UNDOABLE = (
    _S.COMMITTED,
    _S.UNKNOWN,
    _S.COMPENSATION_NOT_APPLIED,
    _S.COMPENSATION_UNKNOWN,
    _S.COMPENSATION_FAILED,
    _S.ORPHANED,
    _S.UNRESOLVED,
)
_OBSERVABLE = (_S.INTENT, _S.UNKNOWN, _S.ORPHANED, _S.UNRESOLVED)
_STEP_RULES: Final[dict[str, dict[StepState, StepState]]] = {
    Ev.STEP_INTENT: dict.fromkeys((_S.NEW, _S.NOT_APPLIED, _S.COMPENSATED), _S.INTENT),
    Ev.STEP_ATTEMPT: dict.fromkeys((_S.INTENT, _S.UNKNOWN), _S.INTENT),
    Ev.STEP_COMMITTED: dict.fromkeys((_S.NEW, *_OBSERVABLE), _S.COMMITTED),
    Ev.STEP_NOT_APPLIED: dict.fromkeys((_S.NEW, *_OBSERVABLE), _S.NOT_APPLIED),
    Ev.STEP_UNKNOWN: dict.fromkeys((_S.NEW, _S.INTENT), _S.UNKNOWN),
    Ev.STEP_LATE: {
        **dict.fromkeys(
            (_S.INTENT, _S.UNKNOWN, _S.NOT_APPLIED, _S.ORPHANED, _S.UNRESOLVED), _S.COMMITTED
        ),
        **dict.fromkeys(
            (
                _S.COMPENSATING,
                _S.COMPENSATED,
                _S.COMPENSATION_NOT_APPLIED,
                _S.COMPENSATION_UNKNOWN,
                _S.COMPENSATION_FAILED,
            ),
            _S.UNRESOLVED,
        ),
    },
    Ev.STEP_COMPENSATING: dict.fromkeys(_UNDOABLE, _S.COMPENSATING),
    Ev.STEP_COMPENSATED: dict.fromkeys(
        (
            _S.COMPENSATING,
            _S.COMPENSATION_NOT_APPLIED,
            _S.COMPENSATION_UNKNOWN,
            _S.COMPENSATION_FAILED,
            _S.UNRESOLVED,
        ),
        _S.COMPENSATED,
    ),
    Ev.STEP_COMPENSATION_NOT_APPLIED: {
        _S.COMPENSATING: _S.COMPENSATION_NOT_APPLIED,
        _S.COMPENSATION_UNKNOWN: _S.COMPENSATION_NOT_APPLIED,
    },
    Ev.STEP_COMPENSATION_UNKNOWN: {_S.COMPENSATING: _S.COMPENSATION_UNKNOWN},
    Ev.STEP_COMPENSATION_FAILED: {
        _S.COMPENSATING: _S.COMPENSATION_FAILED,
        _S.COMPENSATION_NOT_APPLIED: _S.COMPENSATION_FAILED,
    },
    Ev.STEP_ORPHANED: dict.fromkeys(
        (_S.COMMITTED, _S.UNKNOWN, _S.INTENT, _S.UNRESOLVED), _S.ORPHANED
    ),
    Ev.STEP_UNRESOLVED: dict.fromkeys(
        (
            _S.INTENT,
            _S.COMMITTED,
            _S.UNKNOWN,
            _S.COMPENSATION_NOT_APPLIED,
            _S.ORPHANED,
            _S.UNRESOLVED,
        ),
        _S.UNRESOLVED,
    ),
    Ev.STEP_KEPT: dict.fromkeys((_S.COMMITTED, _S.UNRESOLVED), _S.KEPT),
    Ev.STEP_CLOSED: dict.fromkeys(
        (
            _S.INTENT,
            _S.UNKNOWN,
            _S.COMPENSATION_NOT_APPLIED,
            _S.COMPENSATION_UNKNOWN,
            _S.COMPENSATION_FAILED,
            _S.ORPHANED,
            _S.UNRESOLVED,
        ),
        _S.CLOSED,
    ),
}

_G = SagaState
_SAGA_RULES: Final[dict[str, dict[SagaState, SagaState]]] = {
    Ev.SAGA_BEGIN: {_G.NEW: _G.RUNNING},
    Ev.SAGA_CLAIM: {state: state for state in SagaState if state is not _G.NEW},
    Ev.SAGA_COMMITTED: {_G.RUNNING: _G.COMMITTED},
    Ev.SAGA_SUSPENDED: {_G.RUNNING: _G.SUSPENDED},
    Ev.SAGA_RESUMED: dict.fromkeys((_G.RUNNING, _G.SUSPENDED, _G.RELEASED), _G.RUNNING),
    Ev.SAGA_RELEASED: dict.fromkeys((_G.RUNNING, _G.UNWINDING), _G.RELEASED),
    Ev.SAGA_UNWINDING: dict.fromkeys(
        (
            _G.RUNNING,
            _G.SUSPENDED,
            _G.RELEASED,
            _G.COMMITTED,
            _G.REOPENED,
            _G.PARTIAL,
            _G.STUCK,
        ),
        _G.UNWINDING,
    ),
    Ev.SAGA_ROLLED_BACK: {_G.UNWINDING: _G.ROLLED_BACK},
    Ev.SAGA_UNDONE_TO: dict.fromkeys((_G.UNWINDING, _G.PARTIAL, _G.STUCK), _G.COMMITTED),
    Ev.SAGA_PARTIAL: {_G.UNWINDING: _G.PARTIAL},
    Ev.SAGA_STUCK: {_G.UNWINDING: _G.STUCK},
    Ev.SAGA_REOPENED: dict.fromkeys((_G.ROLLED_BACK, _G.COMMITTED), _G.REOPENED),
    Ev.SAGA_CLOSED: dict.fromkeys(
        (_G.COMMITTED, _G.ROLLED_BACK, _G.PARTIAL, _G.STUCK, _G.REOPENED, _G.RELEASED), _G.CLOSED
    ),
}

_C = ScopeState
_SCOPE_RULES: Final[dict[str, dict[ScopeState, ScopeState]]] = {
    "OPEN": dict.fromkeys((_C.NEW, _C.UNDONE, _C.PARTIAL, _C.STUCK), _C.OPEN),
    "LEFT": {_C.OPEN: _C.LEFT},
    "UNWINDING": dict.fromkeys((_C.OPEN, _C.LEFT), _C.UNWINDING),
    "UNDONE": {_C.UNWINDING: _C.UNDONE},
    "PARTIAL": {_C.UNWINDING: _C.PARTIAL},
    "STUCK": {_C.UNWINDING: _C.STUCK},
}

_State = TypeVar("_State", StepState, SagaState, ScopeState)


def _next(rules: dict[str, dict[_State, _State]], state: _State, event: str) -> _State:
    following = rules.get(event, {}).get(state)
    if following is None:
        raise IllegalTransition(f"{event} cannot follow {state.value}.")
    return following


def step_after(state: StepState, event: str) -> StepState:
    """Return the state of a step after a record.

    Raises:
        IllegalTransition: the table does not list it.
    """
    try:
        return _STEP_RULES[event][state]
    except KeyError:
        return _next(_STEP_RULES, state, event)


def saga_after(state: SagaState, event: str) -> SagaState:
    """Return the state of a saga after a record.

    Raises:
        IllegalTransition: the table does not list it.
    """
    return _next(_SAGA_RULES, state, event)


def scope_after(state: ScopeState, event: str) -> ScopeState:
    """Return the state of a savepoint after an event of it.

    Raises:
        IllegalTransition: the table does not list it.
    """
    return _next(_SCOPE_RULES, state, event)


STEP_RESTS: Final = frozenset({_S.COMMITTED, _S.NOT_APPLIED, _S.COMPENSATED, _S.KEPT})
"""States in which nothing about a step is open while its saga is committed."""

STEP_GONE: Final = frozenset({_S.NEW, _S.NOT_APPLIED, _S.COMPENSATED, _S.CLOSED})
"""States in which nothing of a step stands that is still to be undone."""

STEP_STANDS: Final = frozenset(
    {
        _S.INTENT,
        _S.UNKNOWN,
        _S.COMPENSATING,
        _S.COMPENSATION_NOT_APPLIED,
        _S.COMPENSATION_UNKNOWN,
        _S.COMPENSATION_FAILED,
        _S.ORPHANED,
        _S.UNRESOLVED,
    }
)
"""States in which an effect may stand that was neither undone nor declared: never clean."""
