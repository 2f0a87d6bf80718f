"""The rules of a breaker's circuit, as pure functions over one document for all tools.

Rules of this part:

- Closed lets every call through. Open lets none through until the cool-down is over. Half open lets
  a bounded number of probes through at a time; a failed one opens it again, enough successes close
  it.
- Every change of state raises the generation. An ending counts only under the generation that its
  call began with: the late success of an old call closes nothing, its late failure opens nothing.
- A probe whose ending never comes (its process died) gives its place back after another cool-down.
- Time is the document's own axis, which no clock step moves.
- A document that cannot be understood is one that says nothing: all circuits begin anew, closed.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from msgspec import Struct, ValidationError, convert

from agent_saga.controls.breaker.policy import BreakerPolicy
from agent_saga.controls.limits.moments import Axis, Moment
from agent_saga.state.document import Doc

__all__ = [
    "CLOSED",
    "HALF_OPEN",
    "KEY",
    "OPEN",
    "Admission",
    "Circuits",
]

KEY: Final = "breaker"
CLOSED: Final = "closed"
OPEN: Final = "open"
HALF_OPEN: Final = "half open"


class Admission(Struct, frozen=True):
    """Whether a call may go on.

    Attributes:
        admitted: it may; as a probe if `probe`.
        generation: what its ending counts for.
        wait: the seconds until the next try, when it may not.
        why: what opened the breaker.
        began: it is the first probe after a cool-down.
    """

    admitted: bool
    generation: int
    probe: bool = False
    wait: float = 0.0
    why: str = ""
    began: bool = False


class _Circuit(Struct):
    state: Literal["closed", "open", "half open"]
    generation: int
    since: float
    why: str
    probes: dict[str, float]
    good: int


class _Form(Struct):
    """What has to stand in the document."""

    tools: dict[str, _Circuit]
    axis: tuple[float, int, float, str]


def understood(doc: Doc) -> Axis | None:
    """Return the time axis of a document; None if the document cannot be understood."""
    try:
        return Axis(*convert(doc, _Form).axis)
    except ValidationError:
        return None


class Circuits:
    """The circuits of all tools, as they are stored.

    Args:
        doc: the stored document, or None.
        now: what the clocks say.

    Attributes:
        tools: what is stored of each tool. axis: where time stands.
        damaged: the document could not be understood.
    """

    __slots__ = ("axis", "damaged", "tools")

    def __init__(self, doc: Doc | None, now: Moment) -> None:
        found = None if doc is None else understood(doc)
        self.damaged = doc is not None and found is None
        self.tools: dict[str, dict[str, Any]] = {} if found is None else doc["tools"]  # type: ignore[index]
        self.axis = Axis(0.0, *now) if found is None else found.advanced(now)

    def document(self) -> Doc:
        """Return what to store."""
        return {"tools": self.tools, "axis": list(self.axis)}

    def of(self, tool: str) -> dict[str, Any]:
        """Return the circuit of a tool; one that was never heard of is closed."""
        return self.tools.get(tool) or _circuit(CLOSED, 0, self.axis.now, "")

    def trip(self, tool: str, generation: int, why: str) -> bool:
        """Open the circuit, if it is still closed under this generation."""
        found = self.of(tool)
        if found["state"] != CLOSED or found["generation"] != generation:
            return False
        self.tools[tool] = _circuit(OPEN, generation + 1, self.axis.now, why)
        return True

    def admit(self, tool: str, call: str, policy: BreakerPolicy) -> Admission:
        """Let a call through, as a probe where the circuit is not closed, or not."""
        found, now = self.of(tool), self.axis.now
        generation = found["generation"]
        if found["state"] == CLOSED:
            return Admission(True, generation)
        began = False
        if found["state"] == OPEN:
            left = found["since"] + policy.cool_down - now
            if left > 0:
                return Admission(False, generation, wait=left, why=found["why"])
            generation, began = generation + 1, True
            found = _circuit(HALF_OPEN, generation, now, found["why"])
        probes = {p: at for p, at in found["probes"].items() if at + policy.cool_down > now}
        if call not in probes and len(probes) >= policy.probes:
            oldest = min(probes.values())
            return Admission(
                False, generation, wait=oldest + policy.cool_down - now, why=found["why"]
            )
        found["probes"] = {**probes, call: now}
        self.tools[tool] = found
        return Admission(True, generation, probe=True, why=found["why"], began=began)

    def ended(
        self, tool: str, call: str, generation: int, how: bool | None, policy: BreakerPolicy
    ) -> str:
        """Note how a probe ended; return the state that the circuit changed to, or "".

        Args:
            tool: which tool.
            call: which call.
            generation: under which it was admitted.
            how: True for a success, False for a failure, None for what says nothing.
            policy: how many successes close it.
        """
        found = self.tools.get(tool)
        if found is None or found["state"] != HALF_OPEN or found["generation"] != generation:
            return ""
        if found["probes"].pop(call, None) is None or how is None:
            return ""
        if not how:
            self.tools[tool] = _circuit(OPEN, generation + 1, self.axis.now, found["why"])
            return OPEN
        found["good"] += 1
        if found["good"] < policy.success_threshold:
            return ""
        self.tools[tool] = _circuit(CLOSED, generation + 1, self.axis.now, "")
        return CLOSED

    def reset(self, tool: str) -> bool:
        """Close a circuit by hand; False if it was closed already."""
        found = self.of(tool)
        if found["state"] == CLOSED:
            return False
        self.tools[tool] = _circuit(CLOSED, found["generation"] + 1, self.axis.now, "")
        return True


def _circuit(state: str, generation: int, since: float, why: str) -> dict[str, Any]:
    return {
        "state": state,
        "generation": generation,
        "since": since,
        "why": why,
        "probes": {},
        "good": 0,
    }
