"""The decorators that give a function a name in the log: `compensator`, `prober`, `reconciler`.

Rules of this part:

- A decorated function stays the function that it was; it only gains `handler_name` and `.using(…)`,
  which writes an inverse as data: `refund.using(id="$.id")`.
- A template that does not fit the function's parameters is refused where it is written, not when
  something has to be undone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, ParamSpec, Protocol, TypeVar, cast

from agent_saga.domain.templates import Template
from agent_saga.errors import ConfigurationError
from agent_saga.plugins.registry import Handler, HandlerRegistry, process_handlers

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["FILLED", "NamedHandler", "compensator", "prober", "reconciler"]

FILLED: Final = ("result", "args", "prepared", "idempotency_key")
"""The parameters that the engine fills in by name when a handler asks for them."""

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)


class NamedHandler(Protocol[P, R_co]):
    """A function that carries its registered name.

    Attributes:
        handler_name: the name that stands in the log.
    """

    handler_name: str

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Run the function itself."""

    def using(self, /, **kwargs: Any) -> Template:
        """Return this handler with its arguments as data; strings that start with `$` are paths.

        Raises:
            ConfigurationError: an argument does not fit the function, or a path cannot be read.
        """


def compensator(
    name: str,
    *,
    null_safe: bool = False,
    idempotent: bool = False,
    window: float | None = None,
    irreversible: bool = False,
) -> Callable[[Callable[P, R_co]], NamedHandler[P, R_co]]:
    """Register the decorated function as an inverse under a name.

    The name is what the log keeps, so recovery in another process runs the same function.

    Args:
        name: unique among compensators, for example "stripe.refund".
        null_safe: it does no harm when the effect never happened.
        idempotent: called again with the same idempotency key, it takes effect once.
        window: seconds for which `idempotent` holds; None means without limit.
        irreversible: running it is itself an effect that nothing can undo (a letter of apology); a
            human is asked before a tool runs that has it for its inverse.

    Raises:
        DuplicateName: another function has this name; the message names both owners.
        ConfigurationError: the name, the function or a promise cannot be accepted.
    """
    return _registering(
        process_handlers().compensators,
        name,
        null_safe=null_safe,
        idempotent=idempotent,
        window=window,
        irreversible=irreversible,
    )


def prober(name: str) -> Callable[[Callable[P, R_co]], NamedHandler[P, R_co]]:
    """Register the decorated function as a prober under a name.

    A prober says whether a forward call took effect: `Applied(result)`, `NotApplied(final=…)` or
    `CannotTell(reason)`. It is asked when the answer was lost, also by another process after a
    crash.

    Raises:
        DuplicateName: another function has this name; the message names both owners.
        ConfigurationError: the name or the function cannot be accepted.
    """
    return _registering(process_handlers().probers, name)


def reconciler(name: str) -> Callable[[Callable[P, R_co]], NamedHandler[P, R_co]]:
    """Register the decorated function as the reconciler of an inverse, under the inverse's name.

    A reconciler answers later, with an `Observation`, whether the inverse holds in the world.

    Raises:
        DuplicateName: another function has this name; the message names both owners.
        ConfigurationError: the name or the function cannot be accepted.
    """
    return _registering(process_handlers().reconcilers, name)


def _registering(
    registry: HandlerRegistry, name: str, **promises: Any
) -> Callable[[Callable[P, R_co]], NamedHandler[P, R_co]]:
    if callable(name):
        raise ConfigurationError(
            f"@{registry.kind} was used without a name.", fix=f'Write @{registry.kind}("a.name").'
        )

    def register(fn: Callable[P, R_co]) -> NamedHandler[P, R_co]:
        return _named(registry.add(name, fn, **promises), registry.kind)

    return register


def _named(handler: Handler, kind: str) -> NamedHandler[Any, Any]:
    def using(**kwargs: Any) -> Template:
        return _template(handler, kwargs)

    try:
        handler.fn.handler_name = handler.name  # type: ignore[attr-defined]
        handler.fn.using = using  # type: ignore[attr-defined]
    except AttributeError:
        raise ConfigurationError(
            f"The {kind} {handler.name!r} cannot carry its name: it is a "
            f"{type(handler.fn).__name__}, not a function.",
            fix="Decorate a plain function that calls it.",
        ) from None
    return cast("NamedHandler[Any, Any]", handler.fn)


def _template(handler: Handler, kwargs: dict[str, Any]) -> Template:
    if "idempotency_key" in kwargs:
        misfit = f"{handler.name} gets its idempotency_key from the engine"
    else:
        misfit = handler.misfit(kwargs, filled=FILLED)
    if misfit:
        raise ConfigurationError(
            f"The template does not fit its handler: {misfit}.",
            fix="Give exactly the handler's own parameters as keyword arguments of using(…).",
        )
    return Template(handler.name, kwargs)
