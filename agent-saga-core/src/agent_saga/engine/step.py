"""One tool call inside a saga, as the engine knows it while it lives.

Rules of this part:

- Every change of state goes through the lifecycle table (`move`).
- A step is *in flight* from its admission until its protocol ended and, if its call was given up
  while it ran in a thread, until that call really ended.
- `answered` says that nothing of the call can arrive late: the tool returned or raised an answer of
  the provider. `ended_at` is the moment from which `settle_after` counts otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from agent_saga.domain import identity
from agent_saga.domain.compensation import Compensation
from agent_saga.domain.doubt import Doubt
from agent_saga.domain.lifecycle import StepState, step_after
from agent_saga.domain.report import StepLine
from agent_saga.domain.secrets import mask_text
from agent_saga.engine.as_called import Kept, as_called, kept
from agent_saga.engine.forms import KEY
from agent_saga.errors import one_line
from agent_saga.wal.encoding import mac_of

if TYPE_CHECKING:
    from agent_saga.controls.approvals import ApprovalRequest
    from agent_saga.controls.control import CallView
    from agent_saga.engine.forms import Form
    from agent_saga.engine.in_hand import InHand
    from agent_saga.engine.inverse import Attempt
    from agent_saga.engine.requests import Ending
    from agent_saga.engine.saga import Saga
    from agent_saga.engine.scope import Scope
    from agent_saga.engine.tool import Tool
    from agent_saga.engine.wrap import Invocation
    from agent_saga.wal.encoding import Fragment


RECORDED: Final = object()
"""The owner of a recorded step: the log does not tell whose method it was."""


class Elsewhere:
    """What a step of another process is here; errors of its calls name it."""

    __slots__ = ()

    def __reduce__(self) -> str:
        return "ELSEWHERE"


ELSEWHERE: Final = Elsewhere()


def _elsewhere() -> Elsewhere:
    return ELSEWHERE


class Step(Struct, eq=False):
    """One tool call.

    Attributes:
        saga, scope, tool, key, id, generation: which call it is.
        arguments: by name, as recorded and judged; args, kwargs: as they are passed on.
        encoded, faithful: the arguments as the log will hold them, as they were at the call, and
            whether they come back equal; None when that was given up.
        recorded: what is kept of arguments that may change while the tool runs, as they were.
        known_mac: the arguments' MAC where it is known; empty when nobody has asked for it.
        state, order, intent_order: where it stands, and its places in the undo order.
        result, prepared, compensation, provisional: what its inverse is made of.
        missing: why there is no inverse, in words.
        error, answered, ended_at: how its calls ended; answered only if each of them was.
        first_at: when its key was first used, from which an idempotency window counts; or None.
        in_flight, running: see the rules of this part.
        undo_tries: how often its inverse was announced by processes that are gone.
        undo_since: the monotonic time at which its inverse was first tried, or None.
        doubt: what earlier attempts at its inverse may have done.
        once: its effect, or an attempt at its inverse (undo_once), was announced by a version of
            the program that did not declare it idempotent; nothing is repeated then.
        hand: who undoes it now, or did last; or None.
        undo_left: the attempt at its inverse that was given up while it ran, or None.
        approved_by, approved_rules: who let the effect through, and under which rules.
        call: what the gate judged and what was taken for it; None where nothing is judged.
        requests: what humans were asked about it and approved.
        named: the caller named the arguments. shown: code of the user's has held their dict.
        keyed: its caller gave it a key, and may ask for its result again.
        owner: the object whose method the tool is, if any; the same call on another is another
            step.
        spent: the provider has used its idempotency key up; via: forward, fallback or prober.
        parked, late: its protocol ended while its call was running; the ending that came before
            that.
        alone: no earlier attempt may have had an effect.
        fell_back: it went another way, under another key; whoever asks about it uses that one.
        replayable: its result can be given again.
        inner: the steps that were made within its calls, where it may be called again; or None.
    """

    saga: Saga
    scope: Scope
    tool: Tool
    key: identity.StepKey
    id: str
    arguments: Mapping[str, Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    encoded: Fragment | None
    faithful: bool
    known_mac: bytes
    keyed: bool
    named: bool = True
    owner: object = None
    intent_order: int = 0
    generation: int = 0
    state: StepState = StepState.NEW
    order: int | None = None
    result: Any = None
    prepared: Any = None
    compensation: Compensation | None = None
    provisional: Compensation | None = None
    missing: str = ""
    error: BaseException | None = None
    answered: bool = True
    ended_at: float = 0.0
    first_at: float | None = None
    in_flight: bool = True
    running: bool = False
    parked: bool = False
    late: tuple[Form, Ending] | None = None
    alone: bool = True
    fell_back: bool = False
    approved_by: str = ""
    approved_rules: frozenset[str] = frozenset()
    call: CallView | None = None
    spent: bool = False
    via: str = identity.FORWARD
    undo_tries: int = 0
    undo_since: float | None = None
    undo_left: Attempt | None = None
    hand: InHand | None = None
    doubt: Doubt = Doubt.NONE
    once: bool = False
    undo_once: bool = False
    replayable: bool = True
    shown: bool = False
    requests: tuple[ApprovalRequest, ...] = ()
    waiters: list[Callable[[], None]] | None = None
    inner: list[Step] | None = None
    recorded: Kept = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _elsewhere, ()  # an error that names it is pickled; the step itself stays here

    def __deepcopy__(self, memo: object) -> Step:
        return self

    def move(self, event: str) -> None:
        """Change the state as the lifecycle table says.

        Raises:
            IllegalTransition: the table does not list this change.
        """
        self.state = step_after(self.state, event)

    @property
    def mac(self) -> bytes:
        """The arguments' MAC, which finds a blind retry; worked out when it is first asked for."""
        encoded = self.encoded  # read first: who gives it up has set the MAC before
        if not self.known_mac and encoded is not None:
            self.known_mac = mac_of(self.saga.salt, encoded)
        return self.known_mac

    def give_up_encoded(self) -> None:
        """Let go of the encoded arguments; their MAC is kept where somebody may ask for it."""
        if self.keyed or self.state is not StepState.COMMITTED:
            self.known_mac = self.mac
            self._keep()
        elif self.tool.reconciler is not None:
            self._keep()
        self.encoded = None

    def _keep(self) -> None:
        if self.recorded is None and self.encoded is not None:
            self.recorded = kept(self.arguments, self.encoded, faithful=self.faithful)

    def idempotency_key(self, purpose: str = identity.FORWARD) -> str:
        """Return the key that is the same for every attempt at this purpose of this step."""
        return identity.idempotency_key(self.saga.id, self.id, self.generation, purpose)

    def effect_key(self, purpose: str = identity.FORWARD) -> Any:
        """Return the key that the effect itself has: the caller's own, else that of this step."""
        given = self.arguments.get(KEY)
        return self.idempotency_key(purpose) if given is None else given

    def sources(self, *, keyed: bool = True, args: bool = True) -> dict[str, Any]:
        """Return what helpers of this step may ask for by name.

        Args:
            keyed: they ask for the key.
            args: they ask for the arguments.
        """
        sources = {"result": self.result, "prepared": self.prepared}
        if args:
            self.shown = True
            self._keep()
            sources["args"] = as_called(self.arguments, self.recorded)
        if keyed:
            purpose = identity.FALLBACK if self.fell_back else identity.FORWARD
            sources[KEY] = self.effect_key(purpose)
        return sources

    def line(self, detail: str = "", error: BaseException | None = None) -> StepLine:
        """Return this step as one line of a report."""
        label = self.compensation.label if self.compensation is not None else ""
        shown = mask_text(one_line(error)[:2000])[:300] if error is not None else ""
        told = mask_text(detail) if detail else ""
        return StepLine(self.id, self.tool.name, told, label, shown)

    def new_generation(self) -> None:
        """Start over with a new idempotency key: after an undo, or when the key was spent."""
        self.generation += 1
        self.spent = False
        self.answered = True
        self.first_at = None
        self.undo_since = self.undo_left = None
        self.doubt = Doubt.NONE
        self.once = self.undo_once = False
        self.undo_tries = 0

    def retake(self, call: Invocation) -> None:
        """Run again as this step: from now on it belongs to where the new call was made.

        What was made ready for a call whose outcome is unknown stays: it is from before an effect.
        """
        self.give_up_encoded()
        self.recorded = kept(call.arguments, None, faithful=False)
        self.scope = call.scope
        self.tool = call.tool
        self.arguments, self.args, self.kwargs = call.arguments, call.args, call.kwargs
        self.named = call.named
        self.via, self.fell_back = identity.FORWARD, False
        self.compensation = self.call = None
        if self.state is not StepState.UNKNOWN:
            self.provisional = self.prepared = None
        self.approved_rules = frozenset()
        self.approved_by = ""
        self.missing = ""

    def settled(self) -> None:
        """Wake everybody who waits for this step to be no longer in flight."""
        waiters, self.waiters = self.waiters, None
        for wake in waiters or ():
            wake()

    def __repr__(self) -> str:
        return f"<Step {self.tool.name} {self.id[:8]} {self.state.value}>"
