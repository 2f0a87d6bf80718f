"""From records to sagas: what a reader of the log knows.

Rules of this part:

- Records come in a saga's order. Each goes through the lifecycle tables; one that the tables forbid, an
  unknown event, or a payload that cannot be read makes the saga a human's case (`problems`) and never
  stops the others.
- `clean` is true only for a saga that ended and left nothing standing that was neither undone nor
  declared; a saga without an end is not clean.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

from agent_saga.domain.lifecycle import (
    STEP_STANDS,
    SagaState,
    ScopeState,
    StepState,
    saga_after,
    scope_after,
    step_after,
)
from agent_saga.domain.records import NEEDS, Ev
from agent_saga.errors import IllegalTransition

_ENDED: Final = frozenset({SagaState.COMMITTED, SagaState.ROLLED_BACK})
_SAGA_EVENTS: Final = frozenset({e for e in NEEDS if e.startswith("SAGA_")})
_SILENT: Final = frozenset({Ev.STEP_REFUSED})


class LogRecord(Protocol):
    """What the fold reads of a record."""

    @property
    def event(self) -> str: ...
    @property
    def saga(self) -> str: ...
    @property
    def step(self) -> str: ...
    @property
    def epoch(self) -> int: ...
    @property
    def generation(self) -> int: ...
    @property
    def seq(self) -> int: ...
    @property
    def time(self) -> int: ...
    @property
    def data(self) -> Any: ...


class StepView:
    """One step as the log tells it.

    Attributes:
        id, tool, semantics, scope: which call it is; the scope is the path of savepoints.
        state, generation: where it stands.
        arguments, result, inverse: as recorded; secrets are masked.
        detail: the last thing said about it (an error, a reason, evidence).
        approved_by: who let it through.
        order: its outcome's sequence, or None; intent_order: its intent's.
    """

    __slots__ = (
        "approved_by",
        "arguments",
        "detail",
        "generation",
        "id",
        "intent_order",
        "inverse",
        "order",
        "result",
        "scope",
        "semantics",
        "state",
        "tool",
    )

    def __init__(self, step: str) -> None:
        self.id = step
        self.tool = "?"
        self.semantics = ""
        self.scope: tuple[str, ...] = ()
        self.state = StepState.NEW
        self.generation = 0
        self.arguments: Any = None
        self.result: Any = None
        self.inverse: Mapping[str, Any] | None = None
        self.detail = ""
        self.approved_by = ""
        self.order: int | None = None
        self.intent_order = 0

    @property
    def reversible(self) -> bool:
        """Whether leaving it undone harms nobody."""
        return self.semantics == "REVERSIBLE"

    @property
    def stands(self) -> bool:
        """Whether its effect may stand without having been undone or declared."""
        return not self.reversible and self.state in STEP_STANDS


class SagaView:
    """One saga as the log tells it.

    Attributes:
        id, name, labels: which saga it is.
        state, epoch, begun, last: where it stands, and when its first and last records were written.
        cause: why it was undone.
        steps: its steps by id, in the order of their first record.
        scopes: the states of its savepoints by path.
        refused: how many calls were refused before their effect.
        problems: what a reader could not make sense of; a human's case.
    """

    __slots__ = (
        "begun",
        "cause",
        "epoch",
        "id",
        "labels",
        "last",
        "name",
        "problems",
        "refused",
        "scopes",
        "state",
        "steps",
    )

    def __init__(self, saga: str) -> None:
        self.id = saga
        self.name = ""
        self.labels: Mapping[str, Any] = {}
        self.state = SagaState.NEW
        self.epoch = 0
        self.begun = 0
        self.last = 0
        self.cause = ""
        self.steps: dict[str, StepView] = {}
        self.scopes: dict[tuple[str, ...], ScopeState] = {}
        self.refused = 0
        self.problems: list[str] = []

    @property
    def standing(self) -> list[StepView]:
        """The steps whose effect may stand without having been undone or declared."""
        if self.state is SagaState.COMMITTED:
            return [s for s in self.steps.values() if s.stands]
        undone = (StepState.COMPENSATED, StepState.NOT_APPLIED, StepState.KEPT)
        return [
            s
            for s in self.steps.values()
            if not s.reversible and s.state not in undone and not _nothing_to_undo(s)
        ]

    @property
    def kept(self) -> list[StepView]:
        """The steps that stand for ever, as a human approved."""
        return [s for s in self.steps.values() if s.state is StepState.KEPT]

    @property
    def clean(self) -> bool:
        """Whether it ended and left nothing standing that was neither undone nor declared."""
        return (
            self.state in _ENDED and not self.standing and not self.kept and not self.problems
        )


def _nothing_to_undo(step: StepView) -> bool:
    return step.state is StepState.COMMITTED and "none" in (step.inverse or {})


def fold(records: Iterable[LogRecord]) -> dict[str, SagaView]:
    """Return the sagas of a log by id, in the order of their first record."""
    sagas: dict[str, SagaView] = {}
    for record in records:
        if record.saga:
            view = sagas.get(record.saga)
            if view is None:
                view = sagas[record.saga] = SagaView(record.saga)
            take(view, record)
    return sagas


def take(view: SagaView, record: LogRecord) -> None:
    """Take one record into a saga's view; never raises for what the record holds."""
    view.epoch = max(view.epoch, record.epoch)
    view.begun = view.begun or record.time
    view.last = max(view.last, record.time)
    try:
        data = record.data
        fields: Mapping[str, Any] = data if isinstance(data, Mapping) else {}
        _take(view, record, fields)
    except IllegalTransition as error:
        view.problems.append(f"record {record.seq}: {error.message}")
    except Exception as error:
        view.problems.append(f"record {record.seq} cannot be read: {type(error).__name__}: {error}")


def _take(view: SagaView, record: LogRecord, fields: Mapping[str, Any]) -> None:
    event = record.event
    if event not in NEEDS:
        view.problems.append(f"record {record.seq} has the unknown event {event[:60]!r}")
    elif event == Ev.SAGA_UNWINDING and fields.get("scope"):
        _scope(view, tuple(fields["scope"]), "UNWINDING")
    elif event in _SAGA_EVENTS:
        _saga(view, event, fields)
    elif event == Ev.SCOPE_OPEN:
        _scope(view, tuple(fields["path"]), "OPEN")
    elif event == Ev.SCOPE_CLOSED:
        _scope(view, tuple(fields["path"]), str(fields["result"]))
    elif event in _SILENT:
        view.refused += 1
    elif record.step:
        _step(view, record, fields)


def _saga(view: SagaView, event: str, fields: Mapping[str, Any]) -> None:
    view.state = saga_after(view.state, event)
    about = fields.get("about")
    if event == Ev.SAGA_BEGIN and isinstance(about, Mapping):
        view.name = str(about.get("name", ""))
        view.labels = about.get("labels") or {}
    if "cause" in fields:
        view.cause = str(fields["cause"])


def _scope(view: SagaView, path: tuple[str, ...], event: str) -> None:
    view.scopes[path] = scope_after(view.scopes.get(path, ScopeState.NEW), event)


def _step(view: SagaView, record: LogRecord, fields: Mapping[str, Any]) -> None:
    step = view.steps.get(record.step)
    if step is None:
        step = view.steps[record.step] = StepView(record.step)
    if record.event == Ev.STEP_INTENT:
        step.order, step.intent_order = None, record.seq
    step.state = step_after(step.state, record.event)
    step.generation = max(step.generation, record.generation)
    _describe(step, fields)
    if record.event in (Ev.STEP_COMMITTED, Ev.STEP_LATE):
        step.order = record.seq
        step.detail = ""


def _describe(step: StepView, fields: Mapping[str, Any]) -> None:
    call = fields.get("call")
    if isinstance(call, Mapping):
        step.tool = str(call.get("tool", "?"))
        step.semantics = str(call.get("semantics", ""))
        step.scope = tuple(fields.get("scope") or ())
        step.arguments = fields.get("arguments")
    if "result" in fields:
        step.result = fields["result"]
    inverse = fields.get("inverse", fields.get("provisional"))
    if isinstance(inverse, Mapping):
        step.inverse = inverse
    step.approved_by = str(fields.get("approved_by") or step.approved_by)
    step.detail = _detail(fields) or step.detail


def _detail(fields: Mapping[str, Any]) -> str:
    about = fields.get("about")
    if isinstance(about, Mapping):
        fields = about
    error = fields.get("error")
    if isinstance(error, Mapping):
        return f"{error.get('type')}: {error.get('message')}"
    for name in ("reason", "evidence", "missing", "ending"):
        if fields.get(name):
            return str(fields[name])
    return ""
