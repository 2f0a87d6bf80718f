"""What the commands that act on a log share: the daemon over it, and how results are told."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any, Final

from agent_saga.cli.lasting import to_the_end
from agent_saga.cli.output import printable
from agent_saga.cli.stopping import signals_kept
from agent_saga.errors import RecoveryRefused
from agent_saga.plugins.importing import import_modules
from agent_saga.recovery.recover import (
    ELSEWHERE,
    FAILED,
    LIVE,
    NEEDS_HUMAN,
    SETTLED,
    UNDONE,
    WAITING,
)
from agent_saga.runtime.daemon import RecoveryDaemon

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from agent_saga.plugins.notifiers import Notifier
    from agent_saga.recovery.recover import Recovered
    from agent_saga.recovery.undo import Planned

__all__ = ["as_document", "check_handlers", "opened", "plan_lines", "result_lines", "said"]


_SAID: Final = {
    LIVE: "is left alone",
    WAITING: "waits",
    UNDONE: "was undone",
    SETTLED: "is settled",
    NEEDS_HUMAN: "needs a human",
    FAILED: "could not be recovered, and needs a human",
    ELSEWHERE: "is in other hands",
}


@contextlib.contextmanager
def opened(
    path: Path,
    modules: Sequence[str],
    by: str,
    *,
    acts: bool = True,
    quiet: bool = True,
    notifiers: Mapping[str, Notifier] | None = None,
    leave_missing: bool = True,
) -> Iterator[RecoveryDaemon]:
    """Load the handlers' modules and open the log for acting on it.

    Args:
        path: the log's absolute path, found out before a module may change the working directory.
        modules: what `--import` said.
        by: who acts.
        acts: sagas are acted on, so that signals are kept (see `stopping`).
        quiet: the command itself says what became of sagas, so it is not logged too.
        notifiers: told of new cases beside those of plugins.
        leave_missing: as for `RecoveryDaemon`.

    Raises:
        PluginError: a module cannot be loaded.
    """
    if quiet:
        _say_once()
    with to_the_end(path):
        import_modules(modules)
        daemon = RecoveryDaemon(path, by=by, notifiers=notifiers, leave_missing=leave_missing)
        try:
            with signals_kept() if acts else contextlib.nullcontext():
                yield daemon
        finally:
            daemon.close()


class _Unexpected(logging.Handler):
    """Lets through what no command says itself: errors with their traceback."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and logging.lastResort is not None:
            logging.lastResort.handle(record)


def _say_once() -> None:
    """Keep what a command says itself from being logged to the terminal as well."""
    recovery = logging.getLogger("agent_saga.recovery")
    if not recovery.handlers:
        recovery.addHandler(_Unexpected())


def check_handlers(daemon: RecoveryDaemon, *, undo_held: bool = False) -> None:
    """Refuse a pass that could only wait for inverses, since a module was not named.

    Acting without them would make every such saga a human's case. Where other sagas can be
    recovered, these are told by name and wait.

    Args:
        daemon: over the log.
        undo_held: as for the pass.

    Raises:
        RecoveryRefused: inverses are missing, and without them nothing would be done.
    """
    if daemon.leave_missing:
        return
    missing = daemon.missing_handlers(now=True, undo_held=undo_held)
    if not missing or daemon.forecast(undo_held=undo_held).acts:
        return
    names = ", ".join(printable(name) for name in missing)
    raise RecoveryRefused(
        f"These inverses are needed and not registered here: {names}. Nothing was run.",
        fix="Name the modules that register them with --import MODULE. If they are gone for good, "
        "--leave-missing undoes what came after them, and leaves them and what came before to a "
        "human.",
    )


def result_lines(sagas: Iterable[Recovered]) -> list[str]:
    """Return one line for each saga: what became of it, and why."""
    lines = []
    for one in sagas:
        name = f" {printable(one.name)!r}" if one.name else ""
        reason = f": {printable(one.reason)}" if one.reason else ""
        lines.append(f"{printable(one.saga)}{name} {said(one.outcome)}{reason}")
    return lines


def said(outcome: str) -> str:
    """Return what became of a saga, or would become of it, as the rest of a sentence."""
    return _SAID.get(outcome, f"is {outcome}")


def as_document(sagas: Iterable[Recovered]) -> list[dict[str, Any]]:
    """Return the sagas as plain data.

    `stands` says of one that was looked at to its end whether something may stand of it.
    """
    return [
        {
            "saga": one.saga,
            "name": one.name,
            "outcome": one.outcome,
            "reason": one.reason,
            "stands": one.needs_human or one.stands,
        }
        for one in sagas
    ]


def plan_lines(steps: Iterable[Planned]) -> list[str]:
    """Return one line for each step of a plan."""
    return [f"  {step.what:<7} {printable(step.tool)}: {printable(step.detail)}" for step in steps]
