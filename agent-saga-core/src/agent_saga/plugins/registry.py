"""The named handlers: inverses, probers and reconcilers.

Rules of this part:

- A handler is found by its name in this process and, after a crash, in another one; so a name
  stands for one function only (see `named`).
- What a handler promises is recorded with it: `null_safe` (harmless when the effect never
  happened), `idempotent` (the same key takes effect once), `window` (how many seconds it keeps that
  promise).
- Only what really runs when it is called is accepted: a generator function is refused, because
  calling it runs nothing.
- `process_handlers()` is the one set of registries that decorators and plugins fill and that the
  engine reads.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from typing import TYPE_CHECKING, Any, Final

from agent_saga.domain import durations
from agent_saga.domain.flags import flag
from agent_saga.errors import ConfigurationError, UnknownHandler
from agent_saga.plugins.callables import (
    BY_NAME,
    is_async_callable,
    parameters_of,
    refuse_generators,
    required,
)
from agent_saga.plugins.named import NamedRegistry
from agent_saga.plugins.ownership import Owner, owner_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

__all__ = [
    "COMPENSATOR",
    "PROBER",
    "RECONCILER",
    "Handler",
    "HandlerRegistry",
    "Handlers",
    "process_handlers",
]

COMPENSATOR: Final = "compensator"
PROBER: Final = "prober"
RECONCILER: Final = "reconciler"


class Handler:
    """A named function with its owner and its promises.

    Attributes:
        name: the name that stands in the log.
        fn: the function itself.
        owner: the module that registered it, with distribution and version when known.
        null_safe: it does no harm when the effect never happened.
        idempotent: called again with the same idempotency key, it takes effect once.
        window: for how many seconds `idempotent` holds; None means without limit.
        parameters: the parameters of `fn` by name; empty when they cannot be read.
        is_async: calling `fn` returns an awaitable.
        irreversible: running it is itself an effect that nothing can undo.
        redefinable: its name is derived; a function defined inside another one may take it over.
    """

    __slots__ = (
        "fn",
        "idempotent",
        "irreversible",
        "is_async",
        "name",
        "null_safe",
        "owner",
        "parameters",
        "redefinable",
        "window",
    )

    def __init__(
        self,
        name: str,
        fn: Callable[..., Any],
        *,
        owner: Owner | None = None,
        null_safe: bool = False,
        idempotent: bool = False,
        window: float | None = None,
        irreversible: bool = False,
    ) -> None:
        self.name = name
        self.fn = fn
        self.owner = owner or owner_of(fn)
        self.null_safe = null_safe
        self.idempotent = idempotent
        self.window = window
        self.irreversible = bool(irreversible)
        self.parameters: Mapping[str, inspect.Parameter] = parameters_of(fn)
        self.is_async = is_async_callable(fn)
        self.redefinable = False

    def takes(self, name: str) -> bool:
        """Say whether the function accepts this keyword argument."""
        parameter = self.parameters.get(name)
        if parameter is not None:
            return parameter.kind in BY_NAME
        return any(p.kind is inspect.Parameter.VAR_KEYWORD for p in self.parameters.values())

    def misfit(self, names: Iterable[str], *, filled: Iterable[str] = ()) -> str:
        """Say in words why these keyword arguments do not fit, or return an empty string.

        Args:
            names: the keyword arguments that will be given.
            filled: the names that the engine fills in by itself, such as `idempotency_key`.
        """
        if not self.parameters:
            return ""
        given = list(names)
        unknown = [name for name in given if not self.takes(name)]
        if unknown:
            return f"{self.name} has no parameter {unknown[0]!r}"
        missing = required(self.parameters) - set(given) - set(filled)
        return f"{self.name} also needs {', '.join(sorted(missing))}" if missing else ""

    def promises(self) -> tuple[bool, bool, float | None, bool]:
        """Return what was said of it, to compare two registrations."""
        return self.null_safe, self.idempotent, self.window, self.irreversible

    def __repr__(self) -> str:
        return f"Handler({self.name!r}, {self.owner!r})"


class HandlerRegistry(NamedRegistry[Handler]):
    """The handlers of one kind, by name.

    Args:
        kind: `COMPENSATOR`, `PROBER` or `RECONCILER`.
    """

    def add(
        self,
        name: str,
        fn: Callable[..., Any],
        *,
        null_safe: bool = False,
        idempotent: bool = False,
        window: float | None = None,
        irreversible: bool = False,
        owner: Owner | None = None,
        redefinable: bool = False,
    ) -> Handler:
        """Register a function under a name.

        Args:
            name: the name that the log will carry.
            fn: a function, coroutine function or object with `__call__`.
            null_safe: it does no harm when the effect never happened.
            idempotent: called again with the same key, it takes effect once.
            window: seconds for which `idempotent` holds; None means without limit.
            irreversible: running it is itself an effect that nothing can undo.
            owner: who registers it; found from the function when not given.
            redefinable: a function that is defined inside another function may take the name of one
                that is too; for names that are derived and that nobody chose.

        Raises:
            ConfigurationError: the function or a promise cannot be accepted.
            DuplicateName: another function, or the same one with other promises, has this name.
        """
        refuse_generators(self.kind, name, fn)
        for what, said in (
            ("null_safe", null_safe),
            ("idempotent", idempotent),
            ("irreversible", irreversible),
        ):
            flag(f"{what} of {name!r}", said)
        _check_window(name, window, idempotent=idempotent)
        handler = Handler(
            name,
            fn,
            owner=owner,
            null_safe=null_safe,
            idempotent=idempotent,
            window=window,
            irreversible=irreversible,
        )
        handler.redefinable = redefinable
        self.put(name, handler, handler.owner)
        return handler

    def get(self, name: str) -> Handler:
        """Return the handler of this name.

        Raises:
            UnknownHandler: nothing is registered under it in this process.
        """
        handler = self.find(name)
        if handler is None:
            raise self._unknown(name)
        return handler

    def same(self, present: Handler, thing: Handler) -> bool:
        """Say whether both are one registration; at a prompt, a function defined again replaces."""
        if present.promises() == thing.promises() and present.fn == thing.fn:
            return True
        if present.redefinable and thing.redefinable and _local(present.fn) and _local(thing.fn):
            return True
        return _defined_again_at_a_prompt(present.fn, thing.fn)

    @contextlib.contextmanager
    def isolated(self) -> Iterator[HandlerRegistry]:
        """Forget, at the end of the block, what was registered inside it; for tests."""
        things, owners = dict(self._things), dict(self._owners)
        try:
            yield self
        finally:
            with self._lock:
                for present, before in ((self._things, things), (self._owners, owners)):
                    _restore(present, before)

    def _unknown(self, name: str) -> UnknownHandler:
        from difflib import get_close_matches  # noqa: PLC0415 - only for this message

        near = get_close_matches(name, self._things, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        return UnknownHandler(
            f"No {self.kind} is registered under the name {name!r} in this process.{hint}",
            fix="Install the package that brings it, or import the module that registers it "
            "(on the command line: --import MODULE).",
        )


def _local(fn: Callable[..., Any]) -> bool:
    return "<locals>" in getattr(fn, "__qualname__", "")


def _restore(present: dict[str, Any], before: dict[str, Any]) -> None:
    present.clear()
    present.update(before)


def _check_window(name: str, window: object, *, idempotent: bool) -> None:
    if window is None:
        return
    durations.seconds(f"The window of {name!r}", window, longest=durations.CENTURY)
    if not idempotent:
        raise ConfigurationError(
            f"{name!r} has a window but is not idempotent.",
            fix="Add idempotent=True, or leave the window out.",
        )


def _defined_again_at_a_prompt(present: Callable[..., Any], again: Callable[..., Any]) -> bool:
    if not hasattr(sys, "ps1"):
        return False
    first, second = owner_of(present), owner_of(again)
    same_place = (first.module, first.name) == (second.module, second.name)
    module_level = bool(first.name) and "<locals>" not in first.name
    return same_place and module_level and first.module == "__main__"


class Handlers:
    """The three kinds of handlers of one process.

    Attributes:
        compensators: the inverses.
        probers: the functions that say whether an effect happened.
        reconcilers: the functions that observe whether an inverse holds.
    """

    def __init__(self) -> None:
        self.compensators = HandlerRegistry(COMPENSATOR)
        self.probers = HandlerRegistry(PROBER)
        self.reconcilers = HandlerRegistry(RECONCILER)

    @contextlib.contextmanager
    def isolated(self) -> Iterator[Handlers]:
        """Forget, at the end of the block, what was registered inside it; for tests."""
        with self.compensators.isolated(), self.probers.isolated(), self.reconcilers.isolated():
            yield self


_HANDLERS: Final = Handlers()


def process_handlers() -> Handlers:
    """Return the handlers of this process, which decorators and plugins fill."""
    return _HANDLERS
