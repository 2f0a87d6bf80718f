"""`agent-saga verify`: is the log as it was written?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from agent_saga.cli.exits import Exit
from agent_saga.cli.options import log_options
from agent_saga.cli.output import counted, printable, say, say_json
from agent_saga.cli.place import is_there, log_path
from agent_saga.evidence.verify import INTACT, UNSIGNED, ChainReport, verify_chain

if TYPE_CHECKING:
    from agent_saga.evidence.verify import WriterReport

__all__ = ["command"]


@click.command("verify")
@log_options
def command(wal_path: str | None, *, as_json: bool) -> Exit:
    """Check that the log is as it was written: every writer's chain, and what compaction took out.

    Exits with 0 only if everything is intact, with 1 if anything is not, and with 3 if there is no
    record to check. Reads only.
    """
    path = log_path(wal_path)
    report = verify_chain(path) if is_there(path) else ChainReport(f"file:{path}", [], 0)
    if as_json:
        say_json(report.as_dict())
    else:
        say(f"Log: {printable(path)}")
        _print(report)
    if not report.intact:
        return Exit.NOT_CLEAN
    return Exit.CLEAN if report.records else Exit.NOTHING_VERIFIABLE


def _print(report: ChainReport) -> None:
    if not report.writers:
        say("There is no record in this log; nothing was verified.")
        return
    for one in report.writers:
        say(*_writer(one))
    if report.departed:
        say(f"{counted(report.departed, 'writer')} taken out by compaction, as attested.")
    broken = sum(one.state != INTACT for one in report.writers)
    verdict = "Intact" if not broken else f"NOT INTACT: {counted(broken, 'writer')}"
    say(f"{verdict}; {counted(report.records, 'record')} checked.", UNSIGNED)


def _writer(one: WriterReport) -> list[str]:
    left = f", {one.left} taken out by compaction" if one.left else ""
    left += f", {one.lost} LOST" if one.lost else ""
    lines = [f"writer {printable(one.writer)}: {one.state}, {counted(one.records, 'record')}{left}"]
    for problem in one.problems:
        place = f" ({problem.segment}, byte {problem.offset})" if problem.segment else ""
        what = f"  {problem.kind} at sequence {problem.seq}{place}"
        lines.append(f"{what}: {printable(problem.reason)}")
    return lines
