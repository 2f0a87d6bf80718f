"""What the commands that act on a log share: the daemon over it, and how results are told."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from agent_saga.cli.output import printable
from agent_saga.cli.place import log_path
from agent_saga.domain import identity
from agent_saga.errors import RecoveryError, RecoveryRefused
from agent_saga.plugins.importing import import_modules
from agent_saga.runtime.daemon import RecoveryDaemon

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from agent_saga.plugins.notifiers import Notifier
    from agent_saga.recovery.recover import Recovered
    from agent_saga.recovery.survey import Found
    from agent_saga.recovery.undo import Planned

__all__ = ["as_document", "check_handlers", "opened", "plan_lines", "result_lines", "saga_of"]


@contextlib.contextmanager
def opened(
    wal_path: str | None,
    modules: Sequence[str],
    by: str,
    *,
    awaited: bool = False,
    notifiers: Mapping[str, Notifier] | None = None,
) -> Iterator[RecoveryDaemon]:
    """Load the handlers' modules and open the log for acting on it.

    Args:
        wal_path: what `--wal-path` said.
        modules: what `--import` said.
        by: who acts.
        awaited: there may be no log yet.
        notifiers: told of new cases beside those of plugins.

    Raises:
        RecoveryError: there is no log at the path; nothing is created.
        PluginError: a module cannot be loaded.
    """
    path = log_path(wal_path)
    if not path.exists() and not awaited:
        raise RecoveryError(f"There is no log at {path}.", fix="Name it with --wal-path.")
    import_modules(modules)
    daemon = RecoveryDaemon(path, by=by, notifiers=notifiers)
    try:
        yield daemon
    finally:
        daemon.close()


def check_handlers(daemon: RecoveryDaemon, *, leave_missing: bool) -> None:
    """Refuse to act while inverses are missing that open sagas need.

    Acting without them would make every such saga a human's case, although a module was only not
    named.

    Raises:
        RecoveryRefused: inverses are missing, and nobody said that they may be.
    """
    missing = daemon.missing_handlers()
    if not missing or leave_missing:
        return
    names = ", ".join(printable(name) for name in missing)
    raise RecoveryRefused(
        f"These inverses are needed and not registered here: {names}. Nothing was run.",
        fix="Name the modules that register them with --import MODULE. If they are gone for good, "
        "--leave-missing undoes what can be undone and leaves the rest to a human.",
    )


def saga_of(found: Iterable[Found], wanted: str) -> str:
    """Return the id of the saga that a person meant by an id, the beginning of one, or a name.

    Raises:
        RecoveryError: none or several are meant.
    """
    sagas = list(found)
    exact = [saga.id for saga in sagas if saga.id in (wanted, identity.saga_id_of(wanted))]
    meant = exact or [
        saga.id for saga in sagas if saga.id.startswith(wanted) or saga.view.name == wanted
    ]
    if len(meant) == 1:
        return meant[0]
    if meant:
        raise RecoveryError(
            f"{printable(wanted)!r} may be one of {len(meant)} sagas: {', '.join(meant)}.",
            fix="Name it by its id.",
        )
    raise RecoveryError(
        f"There is no saga {printable(wanted)!r} here.", fix="agent-saga list shows all of them."
    )


def result_lines(sagas: Iterable[Recovered]) -> list[str]:
    """Return one line for each saga, and what a person has to do about it."""
    lines = []
    for one in sagas:
        name = f" {printable(one.name)!r}" if one.name else ""
        reason = f": {printable(one.reason)}" if one.reason else ""
        lines.append(f"{one.saga}{name} {one.outcome}{reason}")
    return lines


def as_document(sagas: Iterable[Recovered]) -> list[dict[str, Any]]:
    """Return the sagas as plain data."""
    return [
        {"saga": one.saga, "name": one.name, "outcome": one.outcome, "reason": one.reason}
        for one in sagas
    ]


def plan_lines(steps: Iterable[Planned]) -> list[str]:
    """Return one line for each step of a plan."""
    return [f"  {step.what:<7} {printable(step.tool)}: {printable(step.detail)}" for step in steps]
