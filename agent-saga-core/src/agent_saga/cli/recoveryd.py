"""`saga-recoveryd`: the recovery daemon as a program of its own.

Rules of this part:

- It ends on SIGTERM, SIGINT and SIGHUP after the saga that it is working on. It may start before
  there is a log, and says so; at a path where something else stands it does not start.
- `--once` makes one pass that does not wait, and exits like `agent-saga recover`.
- A saga whose inverses are not registered here waits for a daemon that has them; it is logged and
  told in the health file, and the others go on. `--once` is refused if it could do nothing else.
- A pass that fails is logged, and the next one is made; only `--once` ends with its error.
- The health file, if asked for, is rewritten after every pass with its time and counts; a watcher
  judges by its age, and by `failed`. One that cannot be written stops nothing, is logged, and keeps
  `--once` from ending with 0. A pass that came to no end of its own says so (`skipped`), and so
  does one that could not tell what the log has lost (`untold`). While nothing stands at the path it
  says that (`no_log`): a path with a slip of the pen looks the same for ever.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agent_saga.cli import ending, notifying
from agent_saga.cli.compacting import Schedule
from agent_saga.cli.exits import Exit
from agent_saga.cli.options import import_option, leave_missing_option
from agent_saga.cli.place import existing_log, is_there, log_path
from agent_saga.cli.recovering import check_handlers, opened
from agent_saga.domain.durations import YEAR
from agent_saga.errors import AgentSagaError
from agent_saga.observe.logging import configure_logging

if TYPE_CHECKING:
    from types import FrameType

    from agent_saga.recovery.daemon import Result
    from agent_saga.runtime.daemon import RecoveryDaemon

__all__ = ["main", "program"]

log = logging.getLogger("agent_saga.recovery")


@click.command("saga-recoveryd")
@import_option
@click.option(
    "--wal-path",
    metavar="PATH",
    help="The log; otherwise AGENT_SAGA_WAL, otherwise ./agent-saga.wal.",
)
@click.option(
    "--interval",
    type=click.FloatRange(0.1, YEAR),
    default=5.0,
    show_default=True,
    help="Seconds between passes.",
)
@leave_missing_option
@click.option("--once", is_flag=True, help="Make one pass and exit.")
@click.option("--health-file", type=click.Path(dir_okay=False), help="Rewritten after every pass.")
@click.option(
    "--notify",
    metavar="COMMAND",
    help="Run a program for each new case, with the case as JSON on its standard input.",
)
@click.option(
    "--compact-every",
    type=click.FloatRange(0, YEAR),
    default=86_400.0,
    show_default=True,
    help="Seconds between compactions of the log; 0 never compacts.",
)
@click.option("--json-logs", is_flag=True, help="One JSON document for each log line.")
def program(
    wal_path: str | None,
    modules: tuple[str, ...],
    interval: float,
    health_file: str | None,
    notify: str | None,
    compact_every: float,
    *,
    leave_missing: bool,
    once: bool,
    json_logs: bool,
) -> Exit:
    """Undo what dead processes left, for as long as it runs.

    Inverses run by name, so name the modules that register them with --import. It may start before
    there is a log. A saga whose inverse is not registered waits, is logged and is told in the
    health file; the others go on. It ends with 0 when a signal ends it, with 3 if what stands at
    the path is no log, and with --once as agent-saga recover does.
    """
    configure_logging(format="json" if json_logs else "text")
    path = existing_log(wal_path) if once else log_path(wal_path)
    health = Path(health_file).absolute() if health_file else None
    if not is_there(path):
        log.warning("there is no log at %s yet; it is watched for", path)

    def told(result: Result | None) -> bool:
        return health is None or _write_health(health, path, result)

    by = "saga-recoveryd"
    told_too = {} if notify is None else {notifying.NAME: notifying.program(notify)}
    with opened(
        path, modules, by, quiet=False, notifiers=told_too, leave_missing=leave_missing
    ) as daemon:
        if once:
            check_handlers(daemon)
            result = daemon.sweep()
            clean = told(result) and result.clean
            return Exit.CLEAN if clean else Exit.NOT_CLEAN
        _stop_on_signals(daemon)
        schedule = Schedule(daemon, compact_every)

        def after(result: Result | None) -> None:
            told(result)
            schedule.after_a_pass()

        daemon.watch(interval, after=after)
    return Exit.CLEAN


def _stop_on_signals(daemon: RecoveryDaemon) -> None:
    def stop(signum: int, frame: FrameType | None) -> None:
        del signum, frame
        # Not here: the interrupted code may hold the lock that `stop` needs.
        threading.Thread(target=daemon.stop).start()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    hangup = getattr(signal, "SIGHUP", signal.SIGTERM)
    if signal.getsignal(hangup) is not signal.SIG_IGN:
        signal.signal(hangup, stop)


def _stands(path: Path) -> bool:
    """Say whether anything stands at the log's path; what it is the pass has told."""
    try:
        return is_there(path)
    except AgentSagaError:
        return True


def _write_health(path: Path, watched: Path, result: Result | None) -> bool:
    """Write the state of the last pass; one that cannot be written grows old, which tells too."""
    health: dict[str, object] = {
        "time": time.time(),
        "log": str(watched),
        "no_log": not _stands(watched),
        "failed": result is None,
    }
    if result is not None:
        health |= {
            "not_settled": len(result.sagas),
            "needs_human": len(result.needs_human),
            "waiting": len(result.waiting),
            "skipped": result.skipped,
            "damages": result.damages,
            "missing_handlers": list(result.missing),
            "untold": result.untold,
        }
    fresh = path.with_name(f".{path.name}.new")
    try:
        fresh.write_text(json.dumps(health), encoding="utf-8")
        fresh.replace(path)
    except OSError as error:
        told = "the health file %s cannot be written (%s); make its folder, or name another file"
        log.error(told, path, error.strerror)  # noqa: TRY400 - no fault of ours, so no traceback
        return False
    return True


def main() -> int:
    """Run the daemon and return its exit code."""
    return ending.run(program, "saga-recoveryd", sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
