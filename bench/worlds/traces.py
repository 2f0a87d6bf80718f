"""What an inverse is declared to leave behind, one difference at a time.

Rules of this part:

- A trace names one place with the arguments and the result of its own step filled in, and says how
  the place looks then. It excuses nothing else, and nothing of another step.
- What is added or removed is excused once for each trace: two orders need two traces.
- A number that grows is excused by exactly the sum of what its traces say.
- `must`: the inverse has to leave it. Where it is not there, something went wrong, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final


class Anything(Enum):
    """Whatever the value is; the same one in every process."""

    IT = 0


ANYTHING: Final = Anything.IT


@dataclass(frozen=True)
class Trace:
    """One difference that is declared.

    Attributes:
        path: the parts of its path, as `judging` names differences; "*" stands for any one part.
        to: what stands there now.
        fields: fields that what stands there now must have.
        by: by how much the number there grew.
        must: it has to be there.
        beside: it has to be there only if this place differs.
        stood: the trace counts only if the run's start holds something at this place, or nothing:
            what stands in for a thing is left only if that thing was there.
        there: which of both.
    """

    path: tuple[str, ...]
    to: Any = ANYTHING
    fields: tuple[tuple[str, Any], ...] = ()
    by: float | None = None
    must: bool = False
    beside: tuple[str, ...] = ()
    stood: tuple[str, ...] = ()
    there: bool = True

    def __str__(self) -> str:
        grown = "" if self.by is None else f" by {self.by:+g}"
        return "/".join(self.path) + grown


Traces = Sequence[Trace]


def changed(path: str, to: Any = ANYTHING) -> Trace:
    """Return the trace of a value that is another one now."""
    return Trace(tuple(path.split("/")), to)


def added(path: str, to: Any = ANYTHING, *, must: bool = False, **fields: Any) -> Trace:
    """Return the trace of something that is there now; the path's last part is its name."""
    *place, name = path.split("/")
    return Trace((*place, "+", name), to, tuple(fields.items()), must=must)


def if_there(path: str, *traces: Trace) -> Traces:
    """Return traces that count only where the run's start holds something at a path."""
    return [replace(trace, stood=tuple(path.split("/")), there=True) for trace in traces]


def beside(path: str, trace: Trace) -> Trace:
    """Return a trace that has to be left where a place differs."""
    return replace(trace, must=True, beside=tuple(path.split("/")))


def if_not_there(path: str, *traces: Trace) -> Traces:
    """Return traces that count only where the run's start holds nothing at a path."""
    return [replace(trace, stood=tuple(path.split("/")), there=False) for trace in traces]


def removed(path: str) -> Trace:
    """Return the trace of something that is gone; the path's last part was its name."""
    *place, name = path.split("/")
    return Trace((*place, "-", name))


def grew(path: str, by: float = 1) -> Trace:
    """Return the trace of a number that grew, or shrank, by this much."""
    return Trace(tuple(path.split("/")), by=by)


def reordered(path: str) -> Trace:
    """Return the trace of a list that holds the same in another order."""
    return Trace((*path.split("/"), "~"))
