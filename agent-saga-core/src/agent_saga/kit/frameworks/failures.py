"""What a failed call of a tool means to its run, in every framework.

Rules of this part:

- A call that the gate refuses had no effect and is no failure: the model is told rule and reason.
- Some errors no model can put right: the program or the saga is at fault, a person has halted the
  run, or a step cannot be given again as it was. As text they would be answered with the same call,
  as another step; so they end the run, whoever would make text of them.
- What other failures mean the run says: "continue" leaves it to the framework, "rollback" ends the
  run, "ask" puts it to a human through the gate.
- What ends the program (`KeyboardInterrupt`, `SystemExit`) does not leave a tool: it would end the
  event loop, and nothing would be undone. It leaves as `ProgramEnds`, which ends the run, and the
  boundary raises it when everything was undone.
- A no to going on after a failure counts for the failed call when the run is gone on with.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from agent_saga.controls.approvals import Approval, request_id
from agent_saga.controls.gate import FAILURE_RULE
from agent_saga.domain import identity
from agent_saga.engine.asking import asked_about_failure
from agent_saga.engine.endings import step_of
from agent_saga.engine.quitting import ProgramEnds
from agent_saga.engine.tool import one_of
from agent_saga.errors import (
    ApprovalDenied,
    ApprovalPending,
    ConfigurationError,
    Halted,
    NoBoundary,
    RefusedError,
    ReplayConflict,
    ResultNotRecorded,
    SagaClosed,
    SagaFenced,
    SagaForked,
    SagaUnwinding,
    one_line,
)
from agent_saga.kit.frameworks.boundaries import runtime_of
from agent_saga.wal.encoding import mac

if TYPE_CHECKING:
    from agent_saga.engine.requests import Protocol
    from agent_saga.engine.wrap import Invocation
    from agent_saga.kit.agent_kit import AgentKit

ON_TOOL_FAILURE: Final = ("continue", "rollback", "ask")
FAULTS: Final = (
    *(ConfigurationError, Halted, NoBoundary, SagaClosed, SagaFenced, SagaForked, SagaUnwinding),
    *(ReplayConflict, ResultNotRecorded, ProgramEnds),
)
"""What ends a run whatever the framework makes of its tools' errors."""


def check_policy(kit: AgentKit | None, on_tool_failure: str, asks: str = "…") -> None:
    """Refuse a policy that does not exist, or that needs somebody to ask where there is nobody.

    Args:
        kit: whose gate would ask.
        on_tool_failure: the policy.
        asks: an approval provider to name to whoever has none.

    Raises:
        ConfigurationError: so it is.
    """
    one_of("on_tool_failure", on_tool_failure, ON_TOOL_FAILURE)
    if on_tool_failure == "ask" and runtime_of(kit).gate.approval_provider is None:
        raise ConfigurationError(
            "on_tool_failure='ask' needs somebody to ask, and the gate has no approval provider.",
            fix=f"Give the kit gate=PreFlightGate(approval_provider={asks}).",
        )


def failure_question(
    error: BaseException, on_tool_failure: str, quiet: tuple[type[BaseException], ...] = ()
) -> Protocol[BaseException | None] | None:
    """Return the question whether a run goes on after a tool's failure; None if none is asked.

    Args:
        error: how the call failed.
        on_tool_failure: the run's policy.
        quiet: what is no failure of a tool in this framework, beside refusals and questions.
    """
    step = step_of(error)
    if step is None or on_tool_failure != "ask":
        return None
    if isinstance(error, (ApprovalPending, RefusedError, *FAULTS, *quiet)):
        return None
    return asked_about_failure(step, f"{step.tool.name} failed: {one_line(error)}")


def failure_request(call: Invocation) -> str:
    """Return the id of the question about a call's failure; see `asked_about_failure`."""
    saga, tool = call.scope.saga, call.tool
    key = identity.given_key(("",), tool.name, call.key or "")
    step = saga.keyed.get(key)
    return request_id(
        saga.id,
        identity.step_id(saga.id, key),
        0 if step is None else step.generation,
        tool.name,
        FAILURE_RULE,
        mac(saga.salt, call.arguments),
    )


def denied_failure(tool: str, said: Approval) -> ApprovalDenied:
    """Return the error of a run that a human did not let go on after a tool's failure."""
    return ApprovalDenied(
        f"{tool} had failed, and {said.by} said no to going on.",
        rule=FAILURE_RULE,
        reason=said.note or "a human decided so",
    )


def told(tool: str, refusal: BaseException) -> str:
    """Return what a model is told of a call that was refused."""
    rule, reason = getattr(refusal, "rule", ""), getattr(refusal, "reason", str(refusal))
    return f"{tool} was refused and had no effect (rule {rule}): {reason}"


def is_cancelled() -> bool:
    """Say whether somebody cancels the running task, as opposed to something inside it."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
