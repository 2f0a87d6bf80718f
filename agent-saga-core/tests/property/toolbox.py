"""Real tools, one for each declaration, that act on the world of the running example."""

from __future__ import annotations

import functools
import itertools
from typing import Any

from property.programs import SETTLE_AFTER, FailedBefore, Spec
from property.world import World, await_pauses, run_pauses

from agent_saga import Approval, Compensation, RetryPolicy, SagaTool, tool

_numbers = itertools.count(1).__next__
_current: list[World] = []


def use(world: World) -> None:
    """Let all tools act on this world from now on."""
    _current[:] = [world]


def world() -> World:
    """The world of the running example."""
    return _current[0]


@functools.cache
def tool_for(spec: Spec) -> SagaTool[Any, Any]:
    """Return the tool of a declaration; its calls go as the plan of their label says."""
    options: dict[str, Any] = {
        "name": f"tool_{_numbers()}",
        "timeout": spec.timeout,
        "undo_timeout": spec.undo_timeout,
        "loop_free": True,
    }
    if spec.inverse in ("fn", "raises", "nothing"):
        options["compensate"] = _FACTORIES[spec.inverse]
    if spec.semantics == "COMPENSABLE":
        options |= _compensable(spec)
    if spec.prober:
        options["prober"] = _prober(spec)
    wrapped = tool(spec.semantics, **options)(_forward(spec, "forward"))
    if spec.inverse in ("undo", "provisional"):
        wrapped.undo(idempotent=spec.undo_idempotent)(_undo(spec))
    elif spec.inverse == "null-safe":
        wrapped.undo(idempotent=spec.undo_idempotent, null_safe=True)(_undo_by_arguments(spec))
    if spec.inverse == "provisional":
        wrapped.tool.set_inverse(wrapped.tool.inverse, _provisional)
    return wrapped


def _compensable(spec: Spec) -> dict[str, Any]:
    options: dict[str, Any] = {
        "idempotent": spec.idempotent,
        "repeatable": spec.repeatable,
        "settle_after": SETTLE_AFTER,
        "not_applied_on": (FailedBefore,) if spec.retry else (),
    }
    if spec.retry:
        options["retry"] = RetryPolicy(2, base_delay=0.0, retry_on=FailedBefore)
    if spec.fallback:
        options["fallback_action"] = _forward(spec, "fallback")
    if spec.durable:
        options["commit"] = "durable"
    if spec.prepare:
        options["prepare"] = lambda args: {"before": args["label"]}
    if spec.reconciler:
        options["reconciler"] = _reconciler(spec)
    return options


def _stubborn(label: int) -> bool:
    modes = world().plans[label].forward
    return bool(modes) and modes[0].stubborn


def _forward(spec: Spec, kind: str) -> Any:
    def call(label: int, *, idempotency_key: str) -> Any:
        return run_pauses(world().forward(kind, label, idempotency_key))

    async def acall(label: int, *, idempotency_key: str) -> Any:
        pauses = world().forward(kind, label, idempotency_key)
        return await await_pauses(pauses, stubborn=_stubborn(label))

    return acall if spec.is_async else call


def _undo(spec: Spec) -> Any:
    def undo(result: Any, args: Any, *, idempotency_key: str) -> Any:
        effect = (result or {}).get("effect", 0)
        return _undoing(spec, args["label"], effect, idempotency_key)

    async def aundo(result: Any, args: Any, *, idempotency_key: str) -> Any:
        return await undo(result, args, idempotency_key=idempotency_key)

    return aundo if spec.undo_async else undo


def _undo_by_arguments(spec: Spec) -> Any:
    def undo(args: Any, *, idempotency_key: str) -> Any:
        return _undoing(spec, args["label"], 0, idempotency_key)

    async def aundo(args: Any, *, idempotency_key: str) -> Any:
        return await undo(args, idempotency_key=idempotency_key)

    return aundo if spec.undo_async else undo


def _undoing(spec: Spec, label: int, effect: int, key: str) -> Any:
    pauses = world().undo(label, effect, key, idempotent=spec.undo_idempotent)
    return await_pauses(pauses) if spec.undo_async else run_pauses(pauses)


def _by_function(label: int, effect: int, *, idempotency_key: str) -> Any:
    pauses = world().undo(label, effect, idempotency_key, idempotent=False)
    return run_pauses(pauses)


def _inverse_of(result: Any) -> Compensation:
    return Compensation(fn=_by_function, kwargs=dict(result))


def _no_inverse(result: Any) -> Compensation:
    raise RuntimeError("the factory failed")


def _nothing_to_undo(result: Any) -> Compensation:
    return Compensation.none("a line in a list that nobody reads")


def _provisional(args: Any) -> Compensation:
    return Compensation(fn=_by_function, kwargs={"label": args["label"], "effect": 0})


_FACTORIES = {"fn": _inverse_of, "raises": _no_inverse, "nothing": _nothing_to_undo}


def _prober(spec: Spec) -> Any:
    def probe(args: Any, *, idempotency_key: str) -> object:
        return world().probe(spec.prober, args["label"], idempotency_key)

    return probe


def _reconciler(spec: Spec) -> Any:
    def observe(result: Any) -> object:
        seen = result or {"label": 0, "effect": 0}
        return world().observe(spec.reconciler, seen["label"], seen["effect"])

    return observe


class Humans:
    """Whoever is asked about IRREVERSIBLE calls; answers as the plan of the label says."""

    def ask(self, request: Any) -> Approval:
        answer = world().plans[request.arguments["label"]].approval
        if answer == "raises":
            raise RuntimeError("the telephone is broken")
        return Approval(answer == "yes", "somebody")
