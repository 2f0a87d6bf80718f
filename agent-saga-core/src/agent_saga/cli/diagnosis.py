"""What `doctor` judges, without looking anywhere itself.

A problem makes the exit code 1; a hint does not.
"""

from __future__ import annotations

import difflib
import stat
from typing import TYPE_CHECKING

from agent_saga.domain.commands import queue_command, recover_command
from agent_saga.recovery.hold import hold_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from agent_saga.recovery.hold import Hold

__all__ = [
    "HINT",
    "OK",
    "PROBLEM",
    "Finding",
    "clock_finding",
    "folder_finding",
    "handler_findings",
    "held_findings",
    "lost_findings",
    "stranger_finding",
    "variable_findings",
]

OK = "ok"
HINT = "hint"
PROBLEM = "problem"

_TOLERATED = 5.0
_EVERYBODY_ELSE = stat.S_IRWXG | stat.S_IRWXO


class Finding:
    """One thing that `doctor` found.

    Attributes:
        level: `OK`, `HINT` or `PROBLEM`.
        text: what was found.
        fix: what to do about it.
    """

    __slots__ = ("fix", "level", "text")

    def __init__(self, level: str, text: str, fix: str = "") -> None:
        self.level = level
        self.text = text
        self.fix = fix

    def as_dict(self) -> dict[str, str]:
        """Return the finding as plain data."""
        return {"level": self.level, "text": self.text, "fix": self.fix}


def stranger_finding(version: str | None) -> Finding:
    """Judge whether the distribution `agent-saga`, which is not ours, is installed.

    Args:
        version: its version, or None when it is not installed.
    """
    if version is None:
        return Finding(OK, "No foreign distribution called agent-saga is installed.")
    return Finding(
        PROBLEM,
        f"The distribution agent-saga {version} is installed; it is not from this project.",
        "pip uninstall agent-saga, then pip install --force-reinstall agent-saga-core",
    )


def variable_findings(present: Iterable[str], known: Sequence[str]) -> list[Finding]:
    """Name variables that look like a misspelling of one of ours.

    Args:
        present: the names of the variables of this process.
        known: the names that have a meaning.
    """
    findings = []
    for name in sorted(set(present) - set(known)):
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.85)
        if near:
            text = f"The variable {name} has no effect."
            findings.append(Finding(HINT, text, f"Did you mean {near[0]}?"))
    return findings


def folder_finding(mode: int, owner: int, user: int) -> Finding:
    """Judge who may read the log's folder.

    Args:
        mode: its permission bits.
        owner: the number of the user that owns it.
        user: the number of the user that runs this process.
    """
    if mode & _EVERYBODY_ELSE:
        bits = stat.filemode(mode)
        return Finding(
            PROBLEM,
            f"Other users can reach the log's folder ({bits}); arguments of tools stand in it.",
            "chmod 700 on that folder",
        )
    if owner != user:
        return Finding(
            HINT,
            f"The log's folder belongs to user {owner}, and this process runs as user {user}.",
            "Run the agent, the daemon and this command as the same user.",
        )
    return Finding(OK, "Only its owner can reach the log's folder.")


def handler_findings(missing: Mapping[str, Sequence[str]]) -> list[Finding]:
    """Name the handlers that open sagas need and that nobody registered here.

    Args:
        missing: for each handler, the ids of the sagas that need it.
    """
    if not missing:
        return [Finding(OK, "Every handler that an open saga needs is registered here.")]
    return [
        Finding(
            PROBLEM,
            f"The handler {name!r} is not registered here; {_sagas(sagas)} needed for undoing.",
            "Install the package that brings it, or name its module with --import.",
        )
        for name, sagas in sorted(missing.items())
    ]


def clock_finding(now: int, last: int) -> Finding:
    """Judge whether the clock was put back since the last record was written.

    Args:
        now: the time, in microseconds since the epoch.
        last: the latest time of any record; 0 when there is none.
    """
    ahead = (last - now) / 1e6
    if ahead <= _TOLERATED:
        return Finding(OK, "The clock is not behind the log.")
    return Finding(
        HINT,
        f"The clock is {ahead:.0f} s behind the last record of the log.",
        "Set it: deadlines and windows of idempotent calls are counted by it. Nothing is done "
        "twice because of it.",
    )


def held_findings(held: Iterable[Hold], log: str) -> list[Finding]:
    """Name the sagas that recovery holds for their programs.

    Args:
        held: how long each is held.
        log: the log's path.
    """
    return [
        Finding(
            HINT,
            f"Saga {hold.saga} is held after a crash: {hold_text(hold)}.",
            f"Start its program again, or undo it now: {recover_command(log, '--undo-held')}",
        )
        for hold in held
    ]


def lost_findings(lost: Iterable[tuple[str, str]], log: str) -> list[Finding]:
    """Name the sagas of which the log has lost everything.

    Args:
        lost: each with the reason.
        log: the log's path.
    """
    return [
        Finding(PROBLEM, f"Saga {saga} is lost: {why}.", queue_command(saga, log))
        for saga, why in lost
    ]


def _sagas(ids: Sequence[str]) -> str:
    if len(ids) == 1:
        return f"in saga {ids[0]} it is"
    return f"in {len(ids)} sagas ({ids[0]}, …) it is"
