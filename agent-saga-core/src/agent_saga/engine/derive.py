"""How a step's inverse is derived: by a template, a factory, or a tool's own `undo`.

Rules of this part:

- A factory gets the result as its only positional argument; parameters named `args`, `prepared` and
  `idempotency_key` are filled by name. A provisional one gets no result.
- A tool's own `undo` is a registered handler that asks for `result`, `args` or `prepared` by name:
  a template too.
- Deriving never raises into a step: what fails leaves the step without an inverse, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from agent_saga.domain.compensation import Compensation, from_answer
from agent_saga.domain.templates import Template, template_from
from agent_saga.engine import calls
from agent_saga.engine.forms import Form, name_of, selected
from agent_saga.errors import CompensationError, ConfigurationError, NotRecordable, SecretLeak
from agent_saga.plugins.callables import parameters_of, required
from agent_saga.plugins.process import compensator_named
from agent_saga.plugins.registry import Handler, process_handlers
from agent_saga.wal.encoding import exact

ASKED = ("result", "args", "prepared")
FILLED = ("idempotency_key",)
_WHOLE = {"result": "$", "args": "$args", "prepared": "$prepared"}


class Deriver(Protocol):
    """Derives the inverse of one step.

    Attributes:
        handler: the inverse's registered name, where it is known beforehand.
        template: the recipe by which another process can derive it too, where there is one.
        asks_key: it asks for the idempotency key of the effect; asks_args: for the arguments.
    """

    handler: str | None
    template: Template | None
    asks_key: bool
    asks_args: bool

    def derive(self, sources: Mapping[str, Any]) -> Compensation:
        """Return the inverse; sources are `result`, `args`, `prepared`, `idempotency_key`."""

    @property
    def needs_result(self) -> bool:
        """Whether it can only be derived after the effect."""


class TemplateDeriver:
    """Derives by a template; see `domain.templates`."""

    __slots__ = ("_bound", "_template", "asks_args", "asks_key", "handler", "template")

    def __init__(self, template: Template) -> None:
        self.asks_key, self.asks_args = False, template.asks_args
        self._bound = handler = compensator_named(template.handler)
        misfit = handler.misfit(template.kwargs, filled=FILLED)
        if misfit:
            raise ConfigurationError(f"The template does not fit its handler: {misfit}.")
        _check_recordable(template)
        handler.owner.distribution  # noqa: B018 - looked up now, so that no step has to wait for it
        self.handler: str | None = template.handler
        self.template: Template | None = template
        self._template = template

    def derive(self, sources: Mapping[str, Any]) -> Compensation:
        """Return the inverse that the template gives for this step."""
        inverse = self._template.fill(sources)
        inverse.bound = self._bound
        return inverse

    @property
    def needs_result(self) -> bool:
        """Whether a path of the template reads the result."""
        return self._template.needs_result


class FactoryDeriver:
    """Derives by calling the user's factory with the result."""

    __slots__ = ("asks", "asks_args", "asks_key", "fn", "handler", "needs_result", "template")

    def __init__(self, fn: Callable[..., Any], *, needs_result: bool = True) -> None:
        form = Form(fn, "compensation factory")
        if form.is_async:
            raise ConfigurationError(
                "A compensation factory is a plain function: it only describes the inverse.",
                fix="Do the reading in `prepare=`, and the undoing in the handler.",
            )
        self.fn = fn
        self.handler: str | None = None
        self.template: Template | None = None
        self.needs_result = needs_result
        positional = 1 if needs_result else 0
        accepts = form.accepts or frozenset()
        self.asks = [n for n in (*ASKED[1:], *FILLED) if n in accepts - {*form.names[:positional]}]
        self.asks_key = "idempotency_key" in self.asks
        self.asks_args = "args" in self.asks

    def derive(self, sources: Mapping[str, Any]) -> Compensation:
        """Return what the factory answers, as a compensation."""
        named = {name: sources.get(name) for name in self.asks}
        if self.needs_result:
            return _answer(self.fn(sources["result"], **named))
        return _answer(self.fn(**named))


def _check_recordable(template: Template) -> None:
    """Refuse, before any effect, what the log could not carry to another process."""
    try:
        exact(template.kwargs, what=f"what the template gives {template.handler}")
    except NotRecordable as error:
        raise ConfigurationError(error.message, fix=error.fix) from error
    except SecretLeak:
        return  # a path may only be named like one; what it leads to is looked at


def _answer(answer: object) -> Compensation:
    try:
        return from_answer(answer)
    except CompensationError:
        calls.discard(answer)
        raise


def undo_template(handler: Handler, keep: Sequence[str] | None) -> Template:
    """Return the template that calls a tool's own undo with what it asks for by name.

    Args:
        handler: the registered undo.
        keep: the fields of the result that are recorded for it; None keeps it whole.

    Raises:
        ConfigurationError: the undo asks for something that it cannot get.
    """
    misfit = handler.misfit((), filled=(*ASKED, *FILLED))
    if misfit:
        raise ConfigurationError(
            f"The undo asks for something that it cannot get: {misfit}.",
            fix="An undo may ask for result, args, prepared and idempotency_key by these names.",
        )
    kwargs: dict[str, Any] = {name: _WHOLE[name] for name in ASKED if name in handler.parameters}
    if keep is not None and "result" in kwargs:
        kwargs["result"] = {name: f"$.{name}" for name in keep}
    return Template(handler.name, kwargs)


def deriver_of(compensate: object) -> Deriver | None:
    """Return how `compensate=` derives an inverse; None when it was not given.

    Raises:
        ConfigurationError: it is no template, mapping or factory, or does not fit its handler.
        UnknownHandler: a template names a handler that is not registered in this process.
    """
    if compensate is None:
        return None
    if isinstance(compensate, Template):
        return TemplateDeriver(compensate)
    if isinstance(compensate, Mapping):
        return TemplateDeriver(template_from(compensate))
    if callable(compensate):
        return FactoryDeriver(compensate)
    raise ConfigurationError(
        f"compensate= takes a template, a dict or a factory, not {type(compensate).__name__}.",
        fix="For example compensate=refund.using(id='$.id').",
    )


def provisional_of(provisional: object, inverse: Deriver | None) -> Deriver | None:
    """Return how an inverse is derived before the result is known, or None.

    An inverse that needs no result is also the provisional one if its handler is null-safe.
    """
    if provisional is not None:
        return _given_provisional(provisional)
    if inverse is None or inverse.needs_result or inverse.handler is None:
        return None
    handler = process_handlers().compensators.find(inverse.handler)
    return inverse if handler is not None and handler.null_safe else None


def _given_provisional(provisional: object) -> Deriver:
    if callable(provisional) and not isinstance(provisional, Template):
        return FactoryDeriver(provisional, needs_result=False)
    deriver = deriver_of(provisional)
    if deriver is None or deriver.needs_result:
        raise ConfigurationError("A provisional inverse cannot read the result.")
    return deriver


def helper_form(fn: Callable[..., Any], kind: str) -> Form:
    """Return the form of a helper (`prepare`, a prober, a reconciler) that asks by name.

    Raises:
        ConfigurationError: it needs something that `called` could not give it.
    """
    form = Form(fn, kind)
    gets = ("args", *FILLED) if kind == "prepare" else (*ASKED, *FILLED)
    missing = required(parameters_of(fn)) - {*gets, *form.names[:1]}
    if missing:
        raise ConfigurationError(
            f"The {kind} {name_of(fn)} asks for something that it cannot get: "
            f"{', '.join(sorted(missing))}.",
            fix=f"It may ask for {', '.join(gets)} by these names; a first parameter of another "
            "name gets the arguments of the call.",
        )
    return form


def called(form: Form, sources: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments for a helper (`prepare`, a prober, a reconciler) that asks by name.

    Its first positional parameter gets the step's arguments unless it has one of the names.
    """
    accepts = form.accepts if form.accepts is not None else frozenset(form.names)
    named = selected(accepts, sources)
    if form.names and form.names[0] not in sources:
        return (sources["args"],), named
    return (), named
