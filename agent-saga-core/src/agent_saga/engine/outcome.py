"""What follows from the knowledge that an effect happened: its result, its inverse, its place.

Used in the same way whether the call returned, its fallback did, a prober told, or it arrived late.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_saga.engine.forms import Form
from agent_saga.errors import AgentSagaError, ConfigurationError, SecretLeak, one_line
from agent_saga.observe.logger import logger
from agent_saga.observe.metrics import INVERSES_UNRECORDED, STEPS_WITHOUT_INVERSE

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_saga.domain.compensation import Compensation
    from agent_saga.engine.ports import Engine
    from agent_saga.engine.step import Step

log = logger("agent_saga.engine")


def applied(step: Step, result: Any) -> None:
    """Note that the effect happened with this result, and derive its inverse.

    Never raises: an inverse that cannot be derived leaves the step without one, with the reason.
    """
    step.result = result
    step.error = None
    step.running = False
    step.answered = True
    step.order = step.saga.order()
    step.compensation, step.missing = None, ""
    deriver = step.tool.inverse
    if deriver is None:
        if not step.tool.reversible and not step.tool.irreversible:
            step.missing = "the tool declares no inverse"
            step.saga.engine.metrics.count(STEPS_WITHOUT_INVERSE)
        return
    try:
        sources = step.sources(keyed=deriver.asks_key, args=deriver.asks_args)
        inverse = deriver.derive(sources)
        step.missing = unusable(inverse, step.saga.engine)
    except Exception as error:
        step.missing = f"its inverse could not be derived ({one_line(error)})"
    else:
        if not step.missing:
            step.compensation = inverse
    if step.missing and not step.tool.reversible:
        _say_missing(step)


def unusable(inverse: Compensation, engine: Engine) -> str:
    """Return why an inverse cannot be run in this process, or an empty string."""
    if inverse.nothing or inverse.bound is not None:
        return ""
    if inverse.handler in engine.handlers.compensators:
        return ""
    if inverse.fn is not None:
        return _unfit(inverse.fn)
    origin = f"; it came from {inverse.origin}" if inverse.origin else ""
    return f"its handler {inverse.handler!r} is not registered in this process{origin}"


def _unfit(fn: Callable[..., Any]) -> str:
    try:
        Form(fn, "compensator")
    except ConfigurationError as error:
        return error.message
    return ""


def _say_missing(step: Step) -> None:
    step.saga.engine.metrics.count(STEPS_WITHOUT_INVERSE)
    log.error(
        "%s took effect and cannot be undone: %s (saga %s, step %s)",
        step.tool.name,
        step.missing,
        step.saga.id,
        step.id,
    )


def record_inverse_problem(step: Step, problem: AgentSagaError | None) -> SecretLeak | None:
    """Say that an inverse is kept in memory only; return the error if the caller must see it."""
    if problem is None:
        return None
    step.saga.engine.metrics.count(INVERSES_UNRECORDED)
    log.error(
        "the inverse of %s is kept in this process only, so it is lost in a crash: %s To do: %s",
        step.tool.name,
        problem.message,
        problem.fix,
    )
    return problem if isinstance(problem, SecretLeak) else None
