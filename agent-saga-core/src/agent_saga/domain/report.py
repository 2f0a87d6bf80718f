"""The report of a boundary: what was undone, what stands, and what to do next.

`clean` is true only when nothing may stand that was neither undone nor declared: no failed,
orphaned, unresolved or unsettled step, no kept pivot, no stale record. A REVERSIBLE step that was
left as it is does not count against it.

What a step's line tells of texts that a tool, a prober or a provider chose is on that line: none
of them can look like another line of the report.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from agent_saga.domain.commands import show_command
from agent_saga.domain.printing import printable

OUTCOMES: Final = ("ROLLED_BACK", "PARTIAL", "STUCK", "RELEASED", "COMMITTED")


class StepLine:
    """One step of a report.

    Args:
        step: the step id.
        tool: the tool's name.
        detail: what happened, or why not.
        label: the inverse's description, where there is one.
        error: the exception that ended it, as text.
    """

    __slots__ = ("detail", "error", "label", "step", "tool")

    def __init__(
        self, step: str, tool: str, detail: str = "", label: str = "", error: str = ""
    ) -> None:
        self.step = step
        self.tool = tool
        self.detail = detail
        self.label = label
        self.error = error

    def __str__(self) -> str:
        text = f"{self.tool} [{self.step[:8]}]"
        if self.label and not f".{self.label}".endswith((f".{self.tool}", f".{self.tool}.undo")):
            text += f" by {self.label}"
        if self.detail:
            text += f": {self.detail}"
        return printable(f"{text} ({self.error})" if self.error else text)

    __repr__ = __str__


class RollbackReport:
    """What a boundary left behind.

    Attributes:
        saga_id, name: the saga.
        savepoint: which savepoint of it this report is about; empty for the whole saga.
        undone_to: up to which step the saga was undone; empty for the whole saga.
        outcome: ROLLED_BACK, PARTIAL, STUCK, RELEASED, COMMITTED or SUSPENDED.
        compensated: steps whose inverse succeeded.
        failed: steps whose inverse did not, or may not, have succeeded.
        orphaned: steps that have no inverse and may stand.
        unresolved: steps that unwinding did not reach.
        unsettled: steps of a committed boundary of which it is unknown whether they took effect.
        kept: IRREVERSIBLE steps that a human let through; they stand for ever.
        not_applied: steps that had no effect.
        left: REVERSIBLE steps that were left as they are.
        notes: sentences about waits, late arrivals and other observations.
        wal: the address of the log.
    """

    __slots__ = (
        "compensated",
        "failed",
        "kept",
        "left",
        "name",
        "not_applied",
        "notes",
        "orphaned",
        "outcome",
        "saga_id",
        "savepoint",
        "undone_to",
        "unresolved",
        "unsettled",
        "wal",
    )

    def __init__(self, saga_id: str, name: str = "", wal: str = "") -> None:
        self.saga_id = saga_id
        self.name = name
        self.wal = wal
        self.savepoint = self.undone_to = ""
        self.outcome = ""
        self.compensated: list[StepLine] = []
        self.failed: list[StepLine] = []
        self.orphaned: list[StepLine] = []
        self.unresolved: list[StepLine] = []
        self.unsettled: list[StepLine] = []
        self.kept: list[StepLine] = []
        self.not_applied: list[StepLine] = []
        self.left: list[StepLine] = []
        self.notes: list[str] = []

    @property
    def standing(self) -> list[StepLine]:
        """Every step that may stand without having been declared to."""
        return [*self.failed, *self.orphaned, *self.unresolved, *self.unsettled]

    @property
    def clean(self) -> bool:
        """True when nothing may stand that was neither undone nor declared."""
        if self.failed or self.orphaned or self.unresolved or self.unsettled or self.kept:
            return False
        return self.outcome in ("ROLLED_BACK", "COMMITTED")

    def verdict(self) -> str:
        """Return the outcome that follows from the step lists."""
        if self.failed or self.unresolved:
            return "STUCK"
        return "PARTIAL" if self.orphaned or self.kept else "ROLLED_BACK"

    def summary(self) -> str:
        """Return the report as a person would tell it, several lines."""
        lines = [self._told()]
        for title, steps in (
            ("Undone", self.compensated),
            ("NOT undone, the inverse did not succeed", self.failed),
            ("May still stand, there is no usable inverse", self.orphaned),
            ("Not reached", self.unresolved),
            ("Unknown whether it took effect", self.unsettled),
            ("Stands for ever, as approved", self.kept),
            ("Had no effect", self.not_applied),
        ):
            lines.extend(_section(title, steps))
        lines.extend(f"  Note: {note}" for note in self.notes)
        if self.wal.startswith("file:"):
            lines.append(f"  Log: {self.wal.removeprefix('file:')}")
        if not self.clean:
            lines.append(f"  Next: {self.next_command()}")
        return "\n".join(lines)

    def headline(self) -> str:
        """Return how the boundary ended in one line, with the next command when it is not clean."""
        return self._told() if self.clean else f"{self._told()} Next: {self.next_command()}"

    def next_command(self) -> str:
        """Return the command that shows what to do about this saga."""
        return show_command(self.saga_id, self.wal if self.wal.startswith("file:") else "")

    def _told(self) -> str:
        name = f"{self.name!r} " if self.name else ""
        state = {
            "ROLLED_BACK": "was undone",
            "PARTIAL": "was undone, but something stands",
            "STUCK": "could NOT be undone completely",
            "RELEASED": "could not be finished here and was left to recovery",
            "COMMITTED": "was undone" if self.undone_to else "was committed",
        }.get(self.outcome, "is still open")
        if self.undone_to:
            state += f", as far as the steps after {self.undone_to}"
        verdict = "clean" if self.clean else "NOT clean"
        part = f"Savepoint {self.savepoint!r} of saga" if self.savepoint else "Saga"
        return f"{part} {name}{self.saga_id} {state}: {verdict}."

    def __repr__(self) -> str:
        return f"<RollbackReport {self.saga_id} {self.outcome} clean={self.clean}>"


def _section(title: str, steps: Iterable[StepLine]) -> list[str]:
    steps = list(steps)
    if not steps:
        return []
    return [f"  {title}:", *[f"    - {line}" for line in steps]]
