"""A saga and its steps, made from records so that the engine can undo them.

Rules of this part:

- What recovery runs is the engine's own unwinding; only the steps come from the log. Inverses run
  by name, with the arguments that the log holds and the same idempotency key as in the dead
  process.
- An inverse that was a function of the dead process, or could not be recorded, cannot be run: the
  step is an orphan, with that reason.
- When a prober tells the result of a call whose answer was lost, the inverse is derived by the
  recipe that the intent holds; an intent without one leaves an orphan.
- A call that was in flight when its owner died may arrive until `settle_after` has passed since the
  owner was proved dead: no answer of its provider is known.
- A prober that reads the call's arguments, or a key that its caller gave, is not asked when the log
  masked them: it would look for something else, and its "no" would be false.
- The window of an idempotent call or inverse counts from its first announcement in the log, by the
  wall clock; a clock that was put back closes it.
- Payloads are data from outside: a fact of another form than expected counts as not there.
"""

from __future__ import annotations

import math
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from typing import Any

from agent_saga.domain import identity
from agent_saga.domain.compensation import Compensation
from agent_saga.domain.doubt import OBSERVED, ONCE, doubt_after, once_after
from agent_saga.domain.effective import facts_of
from agent_saga.domain.fold import fork_in, only_of
from agent_saga.domain.lifecycle import saga_after, step_after
from agent_saga.domain.records import BESIDE, Ev
from agent_saga.domain.templates import Template
from agent_saga.engine.forms import KEY, Form
from agent_saga.engine.payloads import recorded_key
from agent_saga.engine.ports import Engine
from agent_saga.engine.saga import Saga
from agent_saga.engine.scope import Scope
from agent_saga.engine.step import RECORDED, Step
from agent_saga.engine.tool import Tool, declare
from agent_saga.plugins.registry import Handler
from agent_saga.recovery.survey import Found
from agent_saga.wal.encoding import exact, mac
from agent_saga.wal.format import Record

Facts = Mapping[str, Any]


def rebuilt(engine: Engine, found: Found, epoch: int, *, dead_since: float) -> Saga:
    """Return a saga in memory as its records tell it, owned under a new epoch.

    Args:
        engine: what it will run on.
        found: the saga, as surveyed after the claim.
        epoch: the epoch of the claim.
        dead_since: the monotonic time at which its owner was proved dead, in seconds.

    Raises:
        IllegalTransition: the records are not in order.
    """
    saga = Saga(engine, found.view.name, is_async=False)
    saga.id = found.id
    saga.epoch = epoch
    saga.begun_in = saga.fork
    saga.began, saga.opened = found.view.began, -math.inf
    scopes: dict[tuple[str, ...], Scope] = {(): saga.root}
    for record in found.effective.records:
        facts = facts_of(record)
        if record.step and record.event not in BESIDE:
            _step(saga, scopes, record, facts, dead_since)
        elif record.event in (Ev.SCOPE_OPEN, Ev.SCOPE_CLOSED):
            _scope_event(saga, scopes, facts, record.event)
        elif record.event == Ev.SAGA_UNWINDING and facts.get("scope"):
            _scope(saga, scopes, _path(facts.get("scope"))).move("UNWINDING")
        elif record.event.startswith("SAGA_") and not (
            record.event == Ev.SAGA_UNWINDING and facts.get("scope")
        ):
            _saga(saga, record, facts)
    return saga


def _saga(saga: Saga, record: Record, facts: Facts) -> None:
    saga.state = saga_after(saga.state, record.event)
    if record.event == Ev.SAGA_UNWINDING:
        saga.only, saga.undo_to = only_of(facts), str(facts.get("to") or "")
    elif record.event == Ev.SAGA_UNDONE_TO:
        saga.only, saga.undo_to = None, ""
    elif record.event == Ev.SAGA_SUSPENDED:
        _count_calls(saga, facts.get("calls"))
    elif record.event == Ev.SAGA_RESUMED:
        fork = fork_in(facts)
        if fork is not None:
            saga.forked_at = fork.at
            saga.abandoned |= dict.fromkeys(fork.abandoned, fork.what)
    salt = facts.get("salt")
    if record.event == Ev.SAGA_BEGIN and isinstance(salt, str):
        saga.salt = _unb64(salt)
    about = facts.get("about")
    if record.event == Ev.SAGA_BEGIN and isinstance(about, Mapping):
        saga.key = str(about.get("key") or "")


def _count_calls(saga: Saga, told: Any) -> None:
    """Learn how many calls of each tool the run had made when it was suspended."""
    for entry in told if isinstance(told, list) else ():
        try:
            path, tool, count = entry
            place = (_path(path), str(tool))
            saga.calls_made[place] = max(saga.calls_made.get(place, 0), int(count))
        except (TypeError, ValueError):
            continue  # as if it had not been told: a call more than is known stops the run


def _step(
    saga: Saga,
    scopes: dict[tuple[str, ...], Scope],
    record: Record,
    facts: Facts,
    dead_since: float,
) -> None:
    step = saga.steps.get(record.step)
    if step is None:
        step = _new_step(saga, scopes, record, facts)
        step.ended_at = dead_since
    before = step.state
    step.state = step_after(before, record.event)
    observed = facts.get(OBSERVED) is True
    step.doubt = doubt_after(step.doubt, before, record.event, observed=observed)
    told = facts.get(ONCE) is True
    step.undo_once = once_after(step.undo_once, step.doubt, record.event, told=told)
    if record.event == Ev.STEP_INTENT:
        step.once = "idempotent" not in facts
    if record.event == Ev.STEP_INTENT and (
        step.first_at is None or step.generation != record.generation
    ):
        step.first_at = _since(saga, record)
    step.generation = record.generation
    _learn(step, record, facts)


def _new_step(
    saga: Saga, scopes: dict[tuple[str, ...], Scope], record: Record, facts: Facts
) -> Step:
    path = _path(facts.get("scope"))
    key = recorded_key(facts)
    recorded = facts.get("args")
    arguments = recorded if isinstance(recorded, dict) else {}
    step = Step(
        saga,
        _scope(saga, scopes, path),
        recorded_tool(saga.engine, facts),
        key,
        record.step,
        arguments,
        (),
        {},
        None,
        faithful=True,
        known_mac=_mac(saga, facts, arguments),
        keyed=key[:1] == ("given",),
        owner=RECORDED,
    )
    step.in_flight = False
    saga.steps[step.id] = step
    return step


def _path(value: Any) -> tuple[str, ...]:
    return tuple(str(part) for part in value or ())


def _mac(saga: Saga, facts: Facts, arguments: dict[str, Any]) -> bytes:
    """Return the arguments' MAC: recorded where they were masked, else worked out from them."""
    recorded = facts.get("mac")
    return _unb64(recorded) if isinstance(recorded, str) else mac(saga.salt, arguments)


def _unb64(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _scope_event(
    saga: Saga, scopes: dict[tuple[str, ...], Scope], facts: Facts, event: str
) -> None:
    scope = _scope(saga, scopes, _path(facts.get("path")))
    scope.move("OPEN" if event == Ev.SCOPE_OPEN else str(facts.get("result")))


def _scope(saga: Saga, scopes: dict[tuple[str, ...], Scope], path: tuple[str, ...]) -> Scope:
    scope = scopes.get(path)
    if scope is None:
        parent = _scope(saga, scopes, path[:-1])
        scope = scopes[path] = Scope(saga, parent, path[-1], path, is_async=False)
        parent.children.append(scope)
    return scope


def recorded_tool(engine: Engine, facts: Facts) -> Tool:
    """Return the tool of a step as far as the log tells it; its function is not there."""
    call = facts.get("call")
    call = call if isinstance(call, Mapping) else {}
    tool = declare(
        _not_here,
        name=str(call.get("tool") or "unknown"),
        semantics=str(call.get("semantics") or "COMPENSABLE"),
        idempotent="idempotent" in facts,
    )
    prober = _prober(engine, facts)
    if prober is not None:
        tool.prober, tool.prober_name = Form(prober.fn, "prober"), prober.name
    settle_after = facts.get("settle_after")
    if isinstance(settle_after, (int, float)):
        tool.settle_after = float(settle_after)
    undo_timeout = facts.get("undo_timeout")
    if isinstance(undo_timeout, (int, float)) and 0 < undo_timeout < math.inf:
        tool.undo_timeout = float(undo_timeout)
    tool.inverse = _recipe(facts)
    return tool


def _prober(engine: Engine, facts: Facts) -> Handler | None:
    name = facts.get("prober")
    handler = engine.handlers.probers.find(name) if isinstance(name, str) else None
    if handler is None or (_reads_arguments(handler, facts) and not _arguments_known(facts)):
        return None
    return handler


def _reads_arguments(prober: Handler, facts: Facts) -> bool:
    """Say whether a prober is asked with arguments of the call, or a key that its caller gave."""
    arguments = facts.get("args")
    given = isinstance(arguments, Mapping) and arguments.get(KEY) is not None
    return prober.takes("args") or (given and prober.takes(KEY))


def _arguments_known(facts: Facts) -> bool:
    """Whether the log holds the arguments of a call as they were; masked ones have a MAC beside."""
    return isinstance(facts.get("args"), Mapping) and "mac" not in facts


def _not_here() -> None:
    """Stand for the tool's function, which belongs to the process that died."""


class RecordedRecipe:
    """Derives an inverse by the recipe that an intent holds."""

    def __init__(self, template: Template, *, masked: bool) -> None:
        self.handler: str | None = template.handler
        self.template: Template | None = template
        self._template = template
        self._masked = masked
        self.asks_key, self.asks_args = False, template.asks_args

    def derive(self, sources: Mapping[str, Any]) -> Compensation:
        """Return the inverse for this step; the masked arguments of a call are not used."""
        if self._masked:
            sources = {name: value for name, value in sources.items() if name != "args"}
        return self._template.fill(sources)

    @property
    def needs_result(self) -> bool:
        """Whether it reads the result."""
        return self._template.needs_result


def _recipe(facts: Facts) -> RecordedRecipe | None:
    recipe = facts.get("recipe")
    if not isinstance(recipe, Mapping):
        return None
    kwargs = recipe.get("kwargs")
    template = Template(str(recipe.get("handler")), kwargs if isinstance(kwargs, Mapping) else {})
    return RecordedRecipe(template, masked=not _arguments_known(facts))


def _learn(step: Step, record: Record, facts: Facts) -> None:
    about = facts.get("about", facts)
    about = about if isinstance(about, Mapping) else {}
    if record.event in (Ev.STEP_INTENT, Ev.STEP_ATTEMPT):
        step.answered = False
    if record.event == Ev.STEP_ATTEMPT and facts.get("via") == identity.FALLBACK:
        _goes_another_way(step, facts)
    if record.event == Ev.STEP_INTENT:
        _begins(step, facts)
    if record.event in (Ev.STEP_COMMITTED, Ev.STEP_LATE):
        _took_effect(step, facts)
    if record.event == Ev.STEP_UNKNOWN:
        step.answered = about.get("answered") is True
    if record.event == Ev.STEP_NOT_APPLIED:
        step.spent = about.get("spent") is True
    if record.event == Ev.STEP_COMPENSATING:
        _undoing(step, record, facts)
    if record.event == Ev.STEP_ORPHANED:
        step.missing = str(facts.get("reason") or "")
    approved = facts.get("approved_by")
    if isinstance(approved, str):
        step.approved_by = approved


def _goes_another_way(step: Step, facts: Facts) -> None:
    """A fallback has its own key: an inverse made for the first one undoes nothing there."""
    step.fell_back = True
    if facts.get("provisional") is False:
        step.provisional = None


def _begins(step: Step, facts: Facts) -> None:
    """An announced effect, perhaps of a new generation: what was known before does not count."""
    step.order, step.intent_order = None, step.saga.order()
    step.compensation, step.undo_since, step.missing = None, None, ""
    step.undo_tries = 0
    step.spent = step.fell_back = False
    if isinstance(facts.get("args"), dict):
        step.arguments = facts["args"]
        step.known_mac = _mac(step.saga, facts, facts["args"])
    step.saga.abandoned.pop(step.id, None)  # it runs again, on the way that is taken now
    step.prepared = facts.get("prepared")
    step.provisional = _inverse(step, facts.get("provisional"))


def _took_effect(step: Step, facts: Facts) -> None:
    step.order = step.saga.order()
    step.result = facts.get("result")
    step.replayable = facts.get("replayable") is not False
    step.answered = True
    step.missing = str(facts.get("missing") or "")
    step.compensation = _inverse(step, facts.get("inverse"))


def _undoing(step: Step, record: Record, facts: Facts) -> None:
    if step.compensation is None:
        step.compensation = _inverse(step, facts.get("inverse"))
    _count_try(step)
    if step.undo_since is None:
        step.undo_since = _since(step.saga, record)


def _count_try(step: Step) -> None:
    """Count an announcement of an inverse by a process that is gone."""
    step.undo_tries += 1


def _since(saga: Saga, record: Record) -> float:
    """Return the monotonic time of a record; a clock that was put back makes it endlessly long."""
    clock = saga.engine.clock
    ago = (clock.now_us() - record.time) / 1e6
    return clock.monotonic() - ago if ago >= 0 else -math.inf


def _inverse(step: Step, recorded: Any) -> Compensation | None:
    if not isinstance(recorded, Mapping):
        return None
    if recorded.get("none"):
        return Compensation.none(str(recorded["none"]))
    handler = recorded.get("handler")
    if "unrecorded" in recorded:
        step.missing = "its inverse could not be recorded, and the process that knew it is gone"
        return None
    if not isinstance(handler, str) or not handler:
        step.missing = "its inverse was a function of the process that died"
        return None
    kwargs = recorded.get("kwargs")
    inverse = Compensation(
        handler=handler,
        kwargs=kwargs if isinstance(kwargs, Mapping) else {},
        description=str(recorded.get("description") or ""),
    )
    inverse.origin = str(recorded.get("from") or "")
    inverse.recorded = exact(inverse.kwargs, what="the recorded inverse")
    return inverse
