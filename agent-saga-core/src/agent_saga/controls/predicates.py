"""Predicates of rules: what can be said of a call, as functions that answer True or False.

Rules of this part:

- A predicate that cannot tell raises, which refuses the call. An argument that may be hidden, since
  nobody named the arguments or some have no name, cannot be told.
- What only the tool's name and tags decide is marked (`of_tool`), so that a rule that cannot hold
  for a tool is not asked at its calls.
- A call without the argument does not exceed, match or equal anything; `breaks_schema` says that an
  argument must be there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any, Final

from agent_saga.controls import given
from agent_saga.controls.amounts import number_of
from agent_saga.controls.control import CallView
from agent_saga.controls.patterns import Pattern
from agent_saga.controls.schemas import checker_of
from agent_saga.domain.semantics import ActionSemantics
from agent_saga.errors import ConfigurationError
from agent_saga.plugins.callables import is_async_callable

Test = Callable[[CallView], bool]
_ABSENT: Final = object()


def tool_is(name: str) -> Test:
    """Return a predicate: the tool has this name, or a name under the prefix `NAME.*`.

    Raises:
        ConfigurationError: it is no name, or stands for no tool.
    """
    name = given.tool("The name of a tool", name)
    if name.endswith("*") and not name.endswith(".*"):
        raise ConfigurationError(
            f"The name of a tool is {given.shown(name)}, which stands for no tool.",
            fix='Write a name, or "PREFIX.*".',
        )
    if name.endswith(".*"):
        prefix = name[:-1]
        return _of_tool(lambda view: view.tool.startswith(prefix))
    return _of_tool(lambda view: view.tool == name)


def semantics_is(semantics: ActionSemantics | str) -> Test:
    """Return a predicate: the tool has these semantics."""
    wanted = ActionSemantics.parse(semantics)
    return lambda view: view.semantics is wanted


def arg_exceeds(arg: str, limit: float | str | Decimal) -> Test:
    """Return a predicate: this argument is a number above the limit.

    An argument that is there and is no finite number cannot be judged, which refuses the call. So
    does a call that may hide it: one whose arguments nobody named, or that has positional
    arguments without a name. Any other call without the argument does not exceed anything.

    Raises:
        ConfigurationError: the limit is no finite number.
    """
    given.name("The name of an argument", arg)
    try:
        bound = number_of(limit)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"The limit of {arg!r} is no finite number: {limit!r}.") from error

    def exceeds(view: CallView) -> bool:
        value = view.arguments.get(arg, _ABSENT)
        if type(value) is int:  # as most are; compared exactly, however large
            return value > bound
        value = _argument(view, arg)
        return value is not _ABSENT and number_of(value) > bound

    return exceeds


def tag_is(tag: str) -> Test:
    """Return a predicate: the tool has this tag.

    Raises:
        ConfigurationError: it is no tag.
    """
    given.name("A tag", tag)
    return _of_tool(lambda view: tag in view.tags)


def arg_in(arg: str, values: Iterable[object]) -> Test:
    """Return a predicate: this argument is one of the values; `1` is not `True` and not `"1"`.

    Raises:
        ConfigurationError: these are no values: a single text, nothing, or what equals not even
            itself.
    """
    given.name("The name of an argument", arg)
    several = isinstance(values, Iterable) and not isinstance(values, str | bytes)
    known = tuple(values) if several else ()
    if not known or any(one != one for one in known):  # noqa: PLR0124 - NaN equals nothing
        raise ConfigurationError(
            f"The values of the argument {arg!r} are a list of values, not {given.shown(values)}."
        )

    def among(view: CallView) -> bool:
        value = _argument(view, arg)
        return any(_same(value, one) for one in known)

    return among


def arg_matches(arg: str, pattern: str) -> Test:
    """Return a predicate: this argument is a text that matches the pattern as a whole.

    A text that is too long to be matched against the pattern in time cannot be judged, nor can one
    of several lines where the answer hangs on whether `.` takes a line break; both refuse the call.
    Write `(?s)` before a pattern that goes across lines; see `patterns`.

    Raises:
        ConfigurationError: the pattern is no regular expression, or one that may take too long.
    """
    given.name("The name of an argument", arg)
    known = Pattern(pattern)

    def matches(view: CallView) -> bool:
        value = _argument(view, arg)
        if value is _ABSENT:
            return False
        if not isinstance(value, str):
            raise TypeError(f"its argument {arg!r} is a {type(value).__name__}, not a text")
        return known.matches(value)

    return matches


def breaks_schema(schema: Any) -> Test:
    """Return a predicate: the arguments do not fit a schema; use it in a rule that refuses.

    Args:
        schema: a Pydantic model, a type that msgspec checks (a `Struct`, a dataclass, a TypedDict),
            or a JSON Schema as a mapping, for which the extra `schema` is needed.

    Raises:
        ConfigurationError: it is none of these, or the extra is not installed.

    A schema says what must be there, so nothing hidden passes: arguments that nobody named break
    it. Give a Struct `forbid_unknown_fields=True` if what it does not know must break it too.
    """
    fits = checker_of(schema)
    return lambda view: not (view.named and fits(dict(view.arguments)))


def all_of(*predicates: Test) -> Test:
    """Return a predicate: all of these hold; the first that does not ends the asking.

    Raises:
        ConfigurationError: there are none, or one is no function that answers at once.
    """
    _check_all(predicates)

    def all_hold(view: CallView) -> bool:
        return all(_plain(one(view)) for one in predicates)

    first = getattr(predicates[0], "of_tool", None)
    return all_hold if first is None else _of_tool(all_hold, first)


def any_of(*predicates: Test) -> Test:
    """Return a predicate: one of these holds.

    Raises:
        ConfigurationError: there are none, or one is no function that answers at once.
    """
    _check_all(predicates)
    return lambda view: any(_plain(one(view)) for one in predicates)


def not_(predicate: Test) -> Test:
    """Return a predicate: this one does not hold.

    Raises:
        ConfigurationError: it is no function that answers at once.
    """
    _check_all((predicate,))
    return lambda view: not _plain(predicate(view))


def _of_tool(predicate: Test, decided: Test | None = None) -> Test:
    """Note that a predicate holds for no call of a tool for which `decided` does not.

    Args:
        predicate: the predicate.
        decided: asks for nothing but the tool's name and tags; the predicate itself if not given.
    """
    vars(predicate)["of_tool"] = decided or predicate
    return predicate


def _check_all(predicates: tuple[Test, ...]) -> None:
    """Refuse what could never answer True or False; a rule of it would only refuse."""
    if not predicates:
        raise ConfigurationError("There is no predicate.", fix="Give one or more.")
    for one in predicates:
        if not callable(one) or isinstance(one, type) or is_async_callable(one):
            raise ConfigurationError(
                f"{given.shown(one)} is no predicate that answers at once.",
                fix="Give a function that returns True or False; a coroutine function is a rule of "
                "its own.",
            )


def _plain(answer: object) -> bool:
    """Return an answer that is one; what is neither True nor False must not count as False."""
    if answer is True or answer is False:
        return answer
    raise TypeError(f"a predicate answered {type(answer).__name__}, neither True nor False")


def _same(one: object, other: object) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return isinstance(one, str) == isinstance(other, str) and one == other


def _argument(view: CallView, arg: str) -> object:
    value = view.arguments.get(arg, _ABSENT)
    if value is _ABSENT and (not view.named or "*" in view.arguments):
        raise LookupError(f"the call does not name its argument {arg!r}")
    return value
