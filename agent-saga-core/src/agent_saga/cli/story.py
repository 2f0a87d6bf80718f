"""The records of one saga as sentences.

Rules of this part:

- One record, one sentence, in the order of the records. A sentence says what the record says and
  judges nothing; where the saga stands is judged by `domain.fold`.
- A payload that was erased, that is damaged, or that has another form than expected shortens its
  sentence and never ends the story. A record of an unknown kind is told by its name.
- Every foreign text goes through `printable` and is cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from agent_saga.cli.output import counted, printable
from agent_saga.domain.records import Ev
from agent_saga.errors import WALCorrupt

if TYPE_CHECKING:
    from agent_saga.wal.format import Record

__all__ = ["moment", "payload_of", "stored", "told"]

_LONGEST_VALUE: Final = 60
_LONGEST_CALL: Final = 160

Facts = Mapping[str, Any]


def told(records: Iterable[Record]) -> Iterator[tuple[Record, str]]:
    """Yield every record of one saga with its sentence.

    Args:
        records: the saga's records, in their order.
    """
    tools: dict[str, str] = {}
    for record in records:
        facts = payload_of(record)
        name = _at(facts, "call", "tool") or facts.get("tool")
        if record.step and isinstance(name, str):
            tools[record.step] = printable(name)
        tool = f"{tools.get(record.step, 'a step')} [{printable(record.step[:8])}]"
        yield record, _sentence(record, tool, facts)


def payload_of(record: Record) -> Facts:
    """Return a record's payload as a mapping; empty when there is none that can be read."""
    try:
        data = record.data
    except WALCorrupt:
        return {}
    return data if isinstance(data, Mapping) else {}


def stored(record: Record) -> Any:
    """Return a record's payload as the JSON that stands in the log; None when it is unreadable."""
    try:
        return None if record.data is None else msgspec.json.decode(record.payload or b"null")
    except (WALCorrupt, msgspec.DecodeError):
        return None


def moment(time_us: int) -> str:
    """Return a time of the log as text, in UTC with milliseconds."""
    try:
        when = datetime.fromtimestamp(time_us / 1_000_000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{time_us} µs"
    return f"{when:%Y-%m-%d %H:%M:%S}.{when.microsecond // 1000:03d}"


def _sentence(record: Record, tool: str, facts: Facts) -> str:
    tell = _TELLERS.get(record.event)
    if tell is None:
        return f"{printable(record.event)} (this version does not know this kind of record)"
    erased = " (its payload was erased)" if record.erased else ""
    return tell(tool, facts) + erased


def _at(facts: object, *path: str) -> Any:
    for name in path:
        if not isinstance(facts, Mapping):
            return None
        facts = facts.get(name)
    return facts


def _pairs(arguments: Mapping[Any, Any]) -> str:
    parts = [f"{printable(key)}={_value(value)}" for key, value in arguments.items()]
    return _cut(", ".join(parts), _LONGEST_CALL)


def _value(value: object) -> str:
    return _cut(printable(repr(value)), _LONGEST_VALUE)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _because(facts: Facts, *names: str) -> str:
    """Return the first of these facts as a clause, or nothing."""
    for name in names:
        value = facts.get(name)
        if value:
            return f": {_cut(_error(value), _LONGEST_CALL)}"
    return ""


def _error(value: object) -> str:
    if isinstance(value, Mapping):
        kind, message = printable(value.get("type", "")), printable(value.get("message", ""))
        return f"{kind}: {message}" if message else kind
    return printable(value)


def _inverse(inverse: object) -> str:
    if _at(inverse, "none"):
        return f"nothing needs undoing: {printable(_at(inverse, 'none'))}"
    handler = _at(inverse, "handler")
    name = printable(handler) if handler else "a function of that process"
    kwargs = _at(inverse, "kwargs")
    return f"inverse {name}({_pairs(kwargs) if isinstance(kwargs, Mapping) else ''})"


def _path(facts: Facts) -> str:
    path = facts.get("path") or facts.get("scope")
    return "/".join(printable(part) for part in path) if isinstance(path, list) else ""


# --- one sentence for each kind of record ---------------------------------------------------------


def _begun(tool: str, facts: Facts) -> str:  # noqa: ARG001
    key = _at(facts, "about", "key")
    return f"The boundary began{f', with the id {printable(repr(key))}' if key else ''}"


def _suspended(tool: str, facts: Facts) -> str:  # noqa: ARG001
    text = f"The saga was suspended{_because(facts, 'reason')}"
    deadline = facts.get("deadline")
    if not isinstance(deadline, int):
        return text
    then = "it waits for a human" if facts.get("at_deadline") == "hold" else "it is undone"
    return f"{text} (until {moment(deadline)} UTC, then {then})"


def _intent(tool: str, facts: Facts) -> str:
    semantics = _at(facts, "call", "semantics")
    approved = facts.get("approved_by")
    by = f", approved by {printable(approved)}" if approved else ""
    kind = f" ({printable(semantics)}{by})" if semantics else ""
    return f"{tool} is announced{kind}{_arguments(facts)}"


def _arguments(facts: Facts) -> str:
    arguments = facts.get("args")
    if not isinstance(arguments, Mapping) or not arguments:
        return ""
    return f": {_pairs(arguments)}"


def _committed(tool: str, facts: Facts) -> str:
    if "call" in facts:
        # A REVERSIBLE step has one record, which announces and ends it.
        tool = f"{tool} ({printable(_at(facts, 'call', 'semantics'))}{_arguments(facts)})"
    via = facts.get("via")
    way = f" by {printable(via)}" if via else ""
    if facts.get("missing"):
        return f"{tool} took effect{way}; WITHOUT INVERSE{_because(facts, 'missing')}"
    undo = f"; {_inverse(facts['inverse'])}" if "inverse" in facts else ""
    return f"{tool} took effect{way}{undo}"


def _late(tool: str, facts: Facts) -> str:
    return f"LATE, after it had been given up: {_committed(tool, facts)}"


def _about(facts: Facts) -> Facts:
    """Return the facts of an ending; they stand apart where the record also announces the step."""
    about = facts.get("about")
    return about if isinstance(about, Mapping) else facts


def _not_applied(tool: str, facts: Facts) -> str:
    about = _about(facts)
    by = _at(about, "by")
    who = f", says {printable(by)}" if by else ""
    return f"{tool} had no effect{who}{_because(about, 'evidence')}"


def _unknown(tool: str, facts: Facts) -> str:
    about = _about(facts)
    running = "; its call is still running" if _at(about, "running") else ""
    return f"{tool} MAY have taken effect{_because(about, 'error', 'ending')}{running}"


def _attempt(tool: str, facts: Facts) -> str:
    return f"{tool}: an attempt ended{_because(facts, 'error', 'ending')}"


def _refused(tool: str, facts: Facts) -> str:
    rule = facts.get("rule")
    return (
        f"{tool} was refused{f' by {printable(rule)}' if rule else ''}{_because(facts, 'reason')}"
    )


def _answered(tool: str, facts: Facts) -> str:
    word = "approved" if facts.get("approved") is True else "NOT approved"
    by = facts.get("by")
    return f"{tool} was {word}{f' by {printable(by)}' if by else ''}{_because(facts, 'note')}"


def _compensating(tool: str, facts: Facts) -> str:
    attempt = facts.get("attempt")
    number = f", attempt {printable(attempt)}" if attempt not in (None, 1) else ""
    return f"{tool} is being undone: {_inverse(facts.get('inverse'))}{number}"


def _compensated(tool: str, facts: Facts) -> str:
    by = facts.get("by")
    seen = " (seen by its reconciler)" if by == "reconciler" else ""
    return f"{tool} was undone{seen}"


def _kept(tool: str, facts: Facts) -> str:
    approved = facts.get("approved_by")
    return f"{tool} stands for ever{f', approved by {printable(approved)}' if approved else ''}"


def _unwinding(tool: str, facts: Facts) -> str:  # noqa: ARG001 - one signature for all tellers
    where = f" of savepoint {_path(facts)}" if _path(facts) else ""
    if isinstance(facts.get("to"), str):
        where = f" of what came after step [{printable(facts['to'][:8])}]"
    return f"Undoing{where} began{_because(facts, 'cause')}"


def _resumed(tool: str, facts: Facts) -> str:  # noqa: ARG001 - one signature for all tellers
    fork = facts.get("fork")
    if not isinstance(fork, Mapping):
        return "The saga was resumed"
    at = _at(fork, "at")
    where = f"after step [{printable(str(at)[:8])}]" if at else "before its first step"
    left = _at(fork, "abandoned")
    count = len(left) if isinstance(left, list) else "an unknown number of"
    what = "kept" if _at(fork, "what") == "keep" else "to be undone"
    return f"The saga was resumed and goes another way {where}; {count} steps are left and {what}"


def _scope_open(tool: str, facts: Facts) -> str:  # noqa: ARG001
    return f"Savepoint {_path(facts)} was entered"


def _scope_closed(tool: str, facts: Facts) -> str:  # noqa: ARG001
    return f"Savepoint {_path(facts)} ended as {printable(facts.get('result', 'unknown'))}"


def _claim(tool: str, facts: Facts) -> str:  # noqa: ARG001
    by = facts.get("by")
    who = f" by {printable(by)}" if by else " by another process"
    return f"The saga was taken over{who}{_because(facts, 'reason')}"


def _closed(text: str) -> Callable[[str, Facts], str]:
    def tell(tool: str, facts: Facts) -> str:
        return (
            f"{text.format(tool)} by {printable(facts.get('by', '?'))}{_because(facts, 'reason')}"
        )

    return tell


def _undone_to(tool: str, facts: Facts) -> str:
    if "by" not in facts:
        return "The steps after that point are undone; the saga is committed again"
    what = "The case about the steps after that point was closed"
    return f"{_closed(what)(tool, facts)}; the saga is committed again"


def _saga_committed(tool: str, facts: Facts) -> str:  # noqa: ARG001
    unsettled = facts.get("unsettled")
    count = len(unsettled) if isinstance(unsettled, list) else 0
    left = f", with {counted(count, 'UNSETTLED step')}" if count else ""
    return f"The boundary was committed{left}"


def _step(text: str) -> Callable[[str, Facts], str]:
    return lambda tool, facts: text.format(tool) + _because(facts, "reason", "error", "evidence")


def _saga(text: str) -> Callable[[str, Facts], str]:
    return lambda tool, facts: text + _because(facts, "cause", "reason")  # noqa: ARG005


_TELLERS: Final[dict[str, Callable[[str, Facts], str]]] = {
    Ev.SAGA_BEGIN: _begun,
    Ev.SAGA_CLAIM: _claim,
    Ev.SAGA_CLOSED: _closed("The case was closed"),
    Ev.SAGA_SUSPENDED: _suspended,
    Ev.SAGA_UNDONE_TO: _undone_to,
    Ev.SAGA_RESUMED: _resumed,
    Ev.SAGA_RELEASED: _saga("The saga was left to recovery"),
    Ev.SAGA_UNWINDING: _unwinding,
    Ev.SAGA_COMMITTED: _saga_committed,
    Ev.SAGA_ROLLED_BACK: _saga("Everything was undone"),
    Ev.SAGA_PARTIAL: _saga("Undoing ended, and something stands"),
    Ev.SAGA_STUCK: _saga("Undoing could NOT be finished"),
    Ev.SAGA_REOPENED: _saga("The saga was reopened by a late arrival"),
    Ev.SCOPE_OPEN: _scope_open,
    Ev.SCOPE_CLOSED: _scope_closed,
    Ev.STEP_REFUSED: _refused,
    Ev.STEP_INTENT: _intent,
    Ev.STEP_ATTEMPT: _attempt,
    Ev.STEP_COMMITTED: _committed,
    Ev.STEP_NOT_APPLIED: _not_applied,
    Ev.STEP_UNKNOWN: _unknown,
    Ev.STEP_LATE: _late,
    Ev.STEP_COMPENSATING: _compensating,
    Ev.STEP_COMPENSATED: _compensated,
    Ev.STEP_COMPENSATION_NOT_APPLIED: _step("The inverse of {} had no effect"),
    Ev.STEP_COMPENSATION_UNKNOWN: _step("The inverse of {} MAY have taken effect"),
    Ev.STEP_COMPENSATION_FAILED: _step("The inverse of {} FAILED for good"),
    Ev.STEP_ORPHANED: _step("{} MAY STAND, and has no usable inverse"),
    Ev.STEP_UNRESOLVED: _step("{} was NOT reached by undoing"),
    Ev.STEP_KEPT: _kept,
    Ev.STEP_CLOSED: _closed("{} was closed"),
    Ev.APPROVAL_ASKED: _step("People were asked about {}"),
    Ev.APPROVAL_DECIDED: _answered,
    Ev.APPROVAL_EXPIRED: _step("Nobody answered about {} in time"),
}
