"""Which saga and which step a person means: one way for every command.

Rules of this part:

- A saga is named by its id, by the `saga_id` that the program gave, by its name, or by the
  beginning of its id; in this order, and the first that fits counts. Nothing else is guessed.
- A name of nothing is `NotFound`, one that may mean several is `Ambiguous`, and the ids are told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agent_saga.cli.output import counted, printable
from agent_saga.cli.place import wal_option
from agent_saga.cli.story import moment
from agent_saga.cli.vanished import meant, vanished
from agent_saga.domain import identity
from agent_saga.domain.commands import queue_command
from agent_saga.errors import Ambiguous, NotFound
from agent_saga.wal.departed import has_departed

if TYPE_CHECKING:
    from agent_saga.cli.reading import LogView
    from agent_saga.domain.views import SagaView

__all__ = ["saga_meant", "step_meant"]

_SHOWN: Final = 20
_LONGEST: Final = 200


def saga_meant(log: LogView, wanted: str) -> SagaView:
    """Return the saga of a log that a person means.

    Raises:
        NotFound: the log has none of this name.
        Ambiguous: it has several.
    """
    found = log.find(wanted)
    if len(found) == 1:
        return found[0]
    if not found:
        lost = meant(vanished(log.path, log.sagas), wanted)
        if lost is not None:
            raise NotFound(
                f"The log tells nothing of the saga {_quoted(lost.id)}: {lost.lost}.",
                fix=queue_command(lost.id, str(log.path)),
            )
        ids = (wanted, identity.saga_id_of(wanted))
        gone = any(has_departed(str(log.path), saga) for saga in ids)
        why = " It left the log by compaction: it had ended well long ago." if gone else ""
        damaged = " Part of the log cannot be read, and may have told of it." if log.broken else ""
        raise NotFound(
            f"There is no saga {_quoted(wanted)} in the log {log.path}.{why}{damaged}",
            fix=f"agent-saga list {wal_option(log.path)}",
        )
    lines = [f"  {view.id}  {view.state.value}  {moment(view.began)}" for view in found[:_SHOWN]]
    if len(found) > _SHOWN:
        lines.append(f"  and {len(found) - _SHOWN} more: agent-saga list {wal_option(log.path)}")
    raise Ambiguous(
        "\n".join(
            [f"{_quoted(wanted)} may be one of {len(found)} sagas; name one by its id:", *lines]
        )
    )


def step_meant(view: SagaView, wanted: str) -> str:
    """Return the id of the step of a saga that a person means: its id, its beginning, or its tool.

    Raises:
        NotFound: the saga has none of this name.
        Ambiguous: it has several.
    """
    steps = view.steps
    if wanted in steps:
        return wanted
    meant = [s for s in steps.values() if s.id.startswith(wanted) or s.tool == wanted]
    if len(meant) == 1:
        return meant[0].id
    lines = [
        f"  {step.id}  {printable(step.tool)}" for step in (meant or list(steps.values()))[:_SHOWN]
    ]
    if meant:
        what = f"{_quoted(wanted)} may be one of {len(meant)} steps; name one by its id:"
        raise Ambiguous("\n".join([what, *lines]))
    none = f"There is no step {_quoted(wanted)} in saga {view.id}; it has "
    raise NotFound(
        "\n".join([f"{none}{counted(len(steps), 'step')}{':' if lines else '.'}", *lines])
    )


def _quoted(wanted: str) -> str:
    text = printable(wanted)
    return f"'{text if len(text) <= _LONGEST else f'{text[:_LONGEST]}…'}'"
