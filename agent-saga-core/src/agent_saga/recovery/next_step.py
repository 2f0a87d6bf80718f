"""What a person does next about a saga that is not clean, as a sentence or a command to paste.

A command ends its line, so that what is pasted is the command and nothing else.
"""

from __future__ import annotations

from typing import Final

from agent_saga.controls.switch.document import Entry
from agent_saga.controls.switch.refusals import quarantined
from agent_saga.domain.commands import queue_command, recover_command, show_command
from agent_saga.domain.lifecycle import SagaState
from agent_saga.domain.views import SagaView
from agent_saga.recovery.suspended import HOLD, UNDO, after_deadline

__all__ = ["next_step", "where_to_look"]

_OPEN: Final = frozenset({SagaState.RUNNING, SagaState.RELEASED, SagaState.UNWINDING})


def next_step(  # noqa: PLR0911 - a table
    view: SagaView, log: str, *, held: bool = False, quarantine: Entry | None = None
) -> str:
    """Return what a person does next about a saga, or an empty string.

    Args:
        view: the saga.
        log: the log's path.
        held: its process died, and it is held for its program.
        quarantine: what it is quarantined by, if it is.
    """
    if view.clean:
        return ""
    if quarantine is not None:
        told = quarantined(quarantine, log)
        return f"{told.message} Nothing undoes it until that is lifted: {told.fix}"
    over = after_deadline(view)
    if view.faults or over == HOLD:
        return queue_command(view.id, log)
    if over == UNDO:
        return f"its deadline is over, so recovery undoes it: {recover_command(log)}"
    if view.state is SagaState.SUSPENDED:
        return _resumed(view)
    if held:
        return (
            "start its program again (saga_id=…, resume=True), or undo it now: "
            f"{recover_command(log, '--undo-held')}"
        )
    if view.state in _OPEN:
        return f"recovery undoes it if its process died: {recover_command(log)}"
    if view.standing or view.state in (SagaState.REOPENED, SagaState.STUCK):
        return queue_command(view.id, log)
    if view.state is SagaState.COMMITTED:
        return "tell whoever approved what stands; the rest of it can be undone"
    return "nothing is left to undo; tell whoever approved what stands"


def _resumed(view: SagaView) -> str:
    until = "before its deadline" if view.deadline is not None else "when it can go on"
    return f"its program resumes it {until}: transaction(saga_id=…, resume=True)"


def where_to_look(view: SagaView, log: str) -> str:
    """Return what to do about a saga with which something else was asked for; never empty."""
    return next_step(view, log) or show_command(view.id, log)
