"""Which calls of a saga have no ending in the log: they may still run, or still arrive.

Rules of this part:

- A call that was announced and has no ending runs for as long as the process that announced it
  lives. So does one that was given up while it ran in a thread, until its late ending is recorded.
- A call that ended without an answer of the provider may arrive until its tool's `settle_after` has
  passed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_saga.domain.effective import facts_of
from agent_saga.domain.leaving import still_running
from agent_saga.domain.records import Ev
from agent_saga.engine.ports import Engine
from agent_saga.recovery.survey import Found


def running_calls(found: Found) -> dict[str, tuple[str, str]]:
    """Return the calls without an ending: by step, the tool and the writer that made the call."""
    steps = found.view.steps
    return {
        step: (steps[step].tool if step in steps else "", writer)
        for step, writer in still_running(found.effective.records).items()
    }


def longest_arrival(found: Found, usual: float) -> float:
    """Return after how many seconds nothing of this saga can arrive any more.

    Args:
        found: the saga.
        usual: the bound for tools that name none.
    """
    bounds: dict[str, Any] = {}
    for record in found.effective.records:
        if record.event == Ev.STEP_INTENT:
            bound = facts_of(record).get("settle_after")
            bounds[record.step] = usual if type(bound) not in (int, float) else bound
    return max((bounds.get(step, usual) for step in found.view.steps), default=usual)


def missing_inverses(engine: Engine, found: Found) -> dict[str, str]:
    """Return the inverses that undoing a saga may need and that are not registered here.

    Each with the package and version that named it, or an empty string.
    """
    missing = found.view.handlers_needed() - set(engine.handlers.compensators)
    origins = dict.fromkeys(sorted(missing), "")
    for record in found.effective.records if missing else ():
        facts = facts_of(record)
        for place in ("inverse", "provisional"):
            inverse = facts.get(place)
            if isinstance(inverse, Mapping) and inverse.get("handler") in origins:
                origins[inverse["handler"]] = str(inverse.get("from") or "")
    return origins


def missing_text(missing: Mapping[str, str]) -> str:
    """Return in words which inverses a saga waits for."""
    names = ", ".join(
        f"{name!r}{f' (it came from {origin})' if origin else ''}"
        for name, origin in missing.items()
    )
    return f"its inverses are not registered here, and nothing of it was run: {names}"


def takeovers(found: Found) -> list[int]:
    """Return when recovery took a saga over since its own program last had it: no end came of it.

    Times are microseconds since the epoch.
    """
    times: list[int] = []
    for record in found.effective.records:
        if record.event == Ev.SAGA_CLAIM and facts_of(record).get("reason") == "recover":
            times.append(record.time)
        elif record.event in (Ev.SAGA_RESUMED, Ev.SAGA_SUSPENDED):
            times.clear()
    return times
