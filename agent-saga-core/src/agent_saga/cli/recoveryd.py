"""`saga-recoveryd`: the recovery daemon as a program of its own.

Rules of this part:

- It ends on SIGTERM and SIGINT after the saga that it is working on.
- `--once` makes one pass that does not wait, and exits like `agent-saga recover`.
- The health file, if asked for, is rewritten after every pass with its time and counts; a watcher
  judges by its age.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agent_saga.cli.exits import Exit, exit_of
from agent_saga.cli.options import import_option
from agent_saga.cli.output import note
from agent_saga.cli.recovering import opened
from agent_saga.errors import AgentSagaError
from agent_saga.observe.logging import configure_logging

if TYPE_CHECKING:
    from types import FrameType

    from agent_saga.recovery.daemon import Result

__all__ = ["main", "program"]


@click.command("saga-recoveryd")
@import_option
@click.option(
    "--wal-path",
    metavar="PATH",
    help="The log; otherwise AGENT_SAGA_WAL, otherwise ./agent-saga.wal.",
)
@click.option(
    "--interval", type=click.FloatRange(min=0.1), default=5.0, help="Seconds between passes."
)
@click.option("--once", is_flag=True, help="Make one pass and exit.")
@click.option("--health-file", type=click.Path(dir_okay=False), help="Rewritten after every pass.")
@click.option("--json-logs", is_flag=True, help="One JSON document for each log line.")
def program(
    wal_path: str | None,
    modules: tuple[str, ...],
    interval: float,
    health_file: str | None,
    *,
    once: bool,
    json_logs: bool,
) -> Exit:
    """Undo what dead processes left, for as long as it runs.

    Inverses run by name, so name the modules that register them with --import.
    """
    configure_logging(format="json" if json_logs else "text")
    stopped = threading.Event()
    _stop_on_signals(stopped)
    with opened(wal_path, modules, "saga-recoveryd") as daemon:
        while True:
            result = daemon.sweep()
            if health_file:
                _write_health(Path(health_file), result)
            if once:
                return Exit.CLEAN if result.clean else Exit.NOT_CLEAN
            if stopped.wait(interval):
                return Exit.CLEAN


def _stop_on_signals(stopped: threading.Event) -> None:
    def stop(signum: int, frame: FrameType | None) -> None:
        del signum, frame
        stopped.set()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)


def _write_health(path: Path, result: Result) -> None:
    health = {
        "time": time.time(),
        "not_settled": len(result.sagas),
        "needs_human": len(result.needs_human),
        "waiting": len(result.waiting),
        "damages": result.damages,
    }
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(json.dumps(health), encoding="utf-8")
    fresh.replace(path)


def main() -> int:
    """Run the daemon and return its exit code."""
    try:
        answer = program.main(prog_name="saga-recoveryd", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except AgentSagaError as error:
        note(f"Error: {error}")
        return exit_of(error)
    return int(answer or Exit.CLEAN)


if __name__ == "__main__":
    sys.exit(main())
