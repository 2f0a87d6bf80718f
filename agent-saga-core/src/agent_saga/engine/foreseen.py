"""Whether the gate has a question about a call that is not made yet.

Frameworks that ask before they call a tool need to know it then. Rules of this part:

- Nothing is decided: what the gate takes for the call is handed back, and the call is judged anew
  when it is made.
- A call that is a step already has no question: its result is given again, or it is settled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_saga.domain.lifecycle import StepState
from agent_saga.engine.admission import drafted
from agent_saga.engine.judging import handed_back, pending_question
from agent_saga.engine.requests import Protocol
from agent_saga.errors import ApprovalPending

if TYPE_CHECKING:
    from agent_saga.engine.wrap import Invocation


def question_before(call: Invocation) -> Protocol[ApprovalPending | None]:
    """Return the question that a human has to answer before a call can be made, or None.

    Args:
        call: with a key, so that the question is the one that the call itself would put.
    """
    step = drafted(call)
    if step is None or step.state is not StepState.NEW:
        return None
    pending = yield from pending_question(step)
    yield from handed_back(step)
    return pending
