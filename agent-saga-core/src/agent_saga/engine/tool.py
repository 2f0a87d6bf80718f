"""The declaration of one tool, checked when it is wrapped.

Rules of this part:

- Nothing is guessed: semantics are declared, or follow from an inverse (`compensate=` alone
  declares COMPENSABLE). An IRREVERSIBLE tool takes no inverse.
- What can be refused at wrapping is refused there, not after an effect: unknown handlers, templates
  that do not fit, forms that do not run.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, Final

from agent_saga.controls import given
from agent_saga.controls.switch.scopes import declare_tool
from agent_saga.domain import durations
from agent_saga.domain.flags import flag
from agent_saga.domain.semantics import ActionSemantics
from agent_saga.engine.derive import Deriver, deriver_of, helper_form, provisional_of
from agent_saga.engine.forms import Form, name_of
from agent_saga.engine.retry import Errors, RetryPolicy, error_types
from agent_saga.errors import ConfigurationError, UndeclaredSemantics
from agent_saga.plugins.registry import HandlerRegistry, process_handlers
from agent_saga.wal.encoding import Fragment, literal

OUTSIDE: Final = ("run", "warn", "refuse")
COMMITS: Final = ("pipelined", "durable")


class Tool:
    """One tool as it was declared; `declare` makes it.

    Attributes:
        name, fn, form: what is called.
        semantics, reversible, irreversible: what kind of effect it has.
        inverse, provisional: how its inverse is derived, after and before the result.
        prepare: reads what an inverse will need, before the effect.
        prober, prober_name, reconciler, reconciler_name: who observes its effect and its inverse.
        timeout, undo_timeout, settle_after: seconds, or None for the default.
        retry, fallback: further attempts within the step.
        not_applied_on, no_answer_on: what its exceptions say about the effect.
        idempotent, window: the same key takes effect once, for so many seconds.
        repeatable: an equal call after an unknown ending is a new step.
        durable: the caller waits until the outcome is durable.
        outside: what happens outside a boundary; None is the default.
        tags, loop_free: labels; whether a private event loop will do.
        risky_inverse: its inverse is itself irreversible; asks_human: a human must approve it.
        declares: the names of its parameters, for controls; None when they cannot be known.
    """

    __slots__ = (
        "asks_human",
        "declares",
        "durable",
        "fallback",
        "fn",
        "form",
        "head",
        "idempotent",
        "inverse",
        "irreversible",
        "loop_free",
        "may_repeat",
        "name",
        "no_answer_on",
        "not_applied_on",
        "outside",
        "prepare",
        "prober",
        "prober_name",
        "provisional",
        "reconciler",
        "reconciler_name",
        "repeatable",
        "retry",
        "reversible",
        "risky_inverse",
        "semantics",
        "settle_after",
        "tags",
        "timeout",
        "undo_timeout",
        "window",
    )

    name: str
    fn: Callable[..., Any]
    form: Form
    semantics: ActionSemantics
    reversible: bool
    irreversible: bool
    inverse: Deriver | None
    provisional: Deriver | None
    prepare: Form | None
    prober: Form | None
    prober_name: str | None
    reconciler: Form | None
    reconciler_name: str | None
    timeout: float | None
    undo_timeout: float | None
    settle_after: float | None
    retry: RetryPolicy | None
    fallback: Form | None
    not_applied_on: Errors
    no_answer_on: Errors
    idempotent: bool
    window: float | None
    repeatable: bool
    durable: bool
    outside: str | None
    tags: frozenset[str]
    loop_free: bool
    head: Fragment
    declares: frozenset[str] | None
    risky_inverse: bool
    asks_human: bool
    may_repeat: bool

    def set_inverse(self, inverse: Deriver | None, provisional: object = None) -> None:
        """Say how the inverse is derived, and with it what can be derived before the result.

        Raises:
            ConfigurationError: the tool is IRREVERSIBLE.
        """
        if inverse is not None and self.irreversible:
            raise ConfigurationError(
                f"{self.name!r} is IRREVERSIBLE and has an inverse; it cannot be both.",
                fix="Declare it COMPENSABLE if the inverse really takes the effect back.",
            )
        self.inverse = inverse
        handler = None if inverse is None else inverse.handler
        found = None if handler is None else process_handlers().compensators.find(handler)
        self.risky_inverse = found is not None and found.irreversible
        self.asks_human = self.irreversible or self.risky_inverse
        self.provisional = provisional_of(provisional, inverse)

    def set_prober(self, prober: object) -> None:
        """Say who tells whether the effect happened: a function, or a registered prober's name."""
        self.prober, self.prober_name = _with_its_name(prober, process_handlers().probers, "prober")

    def set_reconciler(self, reconciler: object) -> None:
        """Say who observes whether the inverse holds: a function, or a registered name."""
        self.reconciler, self.reconciler_name = _with_its_name(
            reconciler, process_handlers().reconcilers, "reconciler"
        )

    def set_bounds(
        self,
        timeout: float | None,
        undo_timeout: float | None,
        settle_after: float | None,
        window: float | None,
    ) -> None:
        """Set the bounds in seconds; None is the default of each."""
        self.timeout = seconds("timeout", timeout)
        self.undo_timeout = seconds("undo_timeout", undo_timeout)
        self.settle_after = seconds("settle_after", settle_after, zero=True)
        self.window = seconds("window", window)


def declare(
    fn: Callable[..., Any],
    *,
    semantics: ActionSemantics | str | None = None,
    compensate: object = None,
    name: str | None = None,
    timeout: float | None = None,
    retry: RetryPolicy | None = None,
    fallback_action: Callable[..., Any] | None = None,
    prepare: Callable[..., Any] | None = None,
    provisional: object = None,
    prober: object = None,
    reconciler: object = None,
    not_applied_on: object = (),
    no_answer_on: object = (),
    idempotent: bool = False,
    window: float | None = None,
    repeatable: bool = False,
    commit: str = "pipelined",
    outside: str | None = None,
    tags: Iterable[str] = (),
    undo_timeout: float | None = None,
    settle_after: float | None = None,
    loop_free: bool = False,
) -> Tool:
    """Declare a tool.

    Args:
        fn: the function, coroutine function, partial, bound method or object with `__call__`.
        semantics: REVERSIBLE, COMPENSABLE or IRREVERSIBLE, as a member or a string.
        compensate: a template, a dict of `handler` and `kwargs`, or a factory on the result.
        name: how the log, rules and reports name it; the function's name when not given.
        timeout: seconds for one attempt.
        retry: a `RetryPolicy` for attempts within the step.
        fallback_action: called in the same step if every attempt had no effect.
        prepare: reads, before the effect, what the inverse will need; its JSON goes into the
            intent.
        provisional: an inverse that can be derived before the result and is harmless without
            effect.
        prober: a function or a registered name; says whether the effect happened.
        reconciler: a function or a registered name; observes whether the inverse holds.
        not_applied_on: exceptions by which the tool says that nothing happened.
        no_answer_on: exceptions that are no answer of the provider, beside timeouts, cancellations
            and connection errors.
        idempotent: repeated with the same idempotency key, it takes effect once.
        window: seconds for which `idempotent` holds; None means without limit.
        repeatable: an equal call after an unknown ending is a new step, not a blind retry.
        commit: "pipelined", or "durable" to wait for the disk before the caller sees the result.
        outside: outside a boundary "run", "warn" or "refuse".
        tags: labels for rules and halts.
        undo_timeout: seconds for one attempt of the inverse.
        settle_after: seconds after which a call without an answer can no longer arrive.
        loop_free: an async tool that may run on a private event loop in a sync boundary.

    Raises:
        UndeclaredSemantics: neither semantics nor an inverse is given.
        ConfigurationError: an option is out of range or does not fit the others.
        UnknownHandler: a template or a name is not registered in this process.
    """
    tool = Tool()
    tool.fn, tool.form = fn, Form(fn)
    tool.name = checked_name(name or name_of(fn))
    tool.semantics = _semantics(tool.name, semantics, compensate)
    tool.reversible = tool.semantics is ActionSemantics.REVERSIBLE
    tool.irreversible = tool.semantics is ActionSemantics.IRREVERSIBLE
    tool.set_inverse(deriver_of(compensate), provisional)
    tool.prepare = None if prepare is None else helper_form(prepare, "prepare")
    tool.set_prober(prober)
    tool.set_reconciler(reconciler)
    tool.set_bounds(timeout, undo_timeout, settle_after, window)
    tool.retry = _retry(retry)
    tool.fallback = None if fallback_action is None else Form(fallback_action, "fallback")
    tool.not_applied_on = error_types(not_applied_on, "not_applied_on")
    tool.no_answer_on = error_types(no_answer_on, "no_answer_on")
    tool.idempotent = flag("idempotent", idempotent)
    tool.repeatable, tool.loop_free = flag("repeatable", repeatable), flag("loop_free", loop_free)
    tool.durable = one_of("commit", commit, COMMITS) == "durable"
    tool.outside = None if outside is None else one_of("outside", outside, OUTSIDE)
    labels = given.several(f"tags= of {tool.name}", tags, str)
    tool.tags = frozenset([given.name(f"A tag of {tool.name}", one) for one in labels])
    tool.may_repeat = tool.idempotent or not (tool.retry is None and tool.fallback is None)
    tool.declares = tool.form.declares
    tool.head = _head(tool)
    declare_tool(tool.name, tool.tags)
    return tool


def _head(tool: Tool) -> Fragment:
    """Return what every announcement says of its tool."""
    head: dict[str, Any] = {"tool": tool.name, "semantics": tool.semantics.value}
    return literal({**head, "tags": sorted(tool.tags)} if tool.tags else head)


_OPTIONS: Final = tuple(inspect.signature(declare).parameters)


def known(options: dict[str, Any]) -> dict[str, Any]:
    """Return options of a tool, all of which `declare` knows.

    Raises:
        ConfigurationError: there is no option of such a name.
    """
    for name in options:
        if name not in _OPTIONS:
            raise ConfigurationError(
                f"A tool has no option {name!r}.", fix=f"It has {', '.join(_OPTIONS[1:])}."
            )
    return options


def checked_name(name: str) -> str:
    """Return a tool's name if it can be recorded and matched.

    Raises:
        ConfigurationError: it is empty, too long, or has characters that are not printable.
    """
    if not isinstance(name, str) or not name.strip() or len(name) > 300 or not name.isprintable():
        raise ConfigurationError(
            f"{str(name)[:40]!r} cannot name a tool: it is empty, longer than 300 characters, or "
            "has characters that are not printable.",
            fix="Give name='…'.",
        )
    return name


def seconds(what: str, value: float | None, *, zero: bool = False) -> float | None:
    """Return a number of seconds, or None when it was not given.

    Raises:
        ConfigurationError: it is no finite number above zero (or, if allowed, zero).
    """
    if value is None:
        return None
    return durations.seconds(what, value, longest=durations.CENTURY, zero=zero)


def _semantics(name: str, semantics: object, compensate: object) -> ActionSemantics:
    if semantics is not None:
        return ActionSemantics.parse(semantics)  # type: ignore[arg-type]
    if compensate is not None:
        return ActionSemantics.COMPENSABLE
    raise UndeclaredSemantics(
        f"Nothing says what {name!r} does to the world.",
        fix="Give semantics='REVERSIBLE' (a read), 'COMPENSABLE' or 'IRREVERSIBLE'.",
    )


def _retry(retry: object) -> RetryPolicy | None:
    if retry is None or isinstance(retry, RetryPolicy):
        return retry
    raise ConfigurationError(f"retry= takes a RetryPolicy, not {type(retry).__name__}.")


def one_of(what: str, value: object, allowed: tuple[str, ...]) -> str:
    """Return a word if it is one of those allowed.

    Raises:
        ConfigurationError: it is not; the message lists them.
    """
    if isinstance(value, str) and value in allowed:
        return value
    raise ConfigurationError(f"{what} is one of {', '.join(allowed)}, not {value!r}.")


def _with_its_name(
    given: object, registry: HandlerRegistry, kind: str
) -> tuple[Form | None, str | None]:
    if given is None:
        return None, None
    if isinstance(given, str):
        return helper_form(registry.get(given).fn, kind), given
    if callable(given):
        return helper_form(given, kind), _registered_name(given, registry)
    raise ConfigurationError(f"{kind}= takes a function or a registered name, not {given!r}.")


def _registered_name(fn: Callable[..., Any], registry: HandlerRegistry) -> str | None:
    for name in registry:
        handler = registry.find(name)
        if handler is not None and handler.fn is fn:
            return name
    return None
