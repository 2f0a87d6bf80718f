"""What a program gives to a recovery daemon, checked when it is given.

What is wrong shows where it is written, and not in a pass, when nobody looks and a case waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from agent_saga.controls.humans.names import blank
from agent_saga.domain.durations import shown
from agent_saga.domain.flags import flag
from agent_saga.errors import ConfigurationError
from agent_saga.plugins.callables import is_async_callable
from agent_saga.plugins.notifiers import Notifier, check_notifier

__all__ = ["called_after", "flag", "name_given", "notifiers_given", "text", "told_given"]


def told_given(told: Iterable[Callable[[Any], object]]) -> list[Callable[[Any], object]]:
    """Return who is called with each saga that needs a human.

    Raises:
        ConfigurationError: it is no list of plain functions.
    """
    fix = "Give a list of plain functions that take one saga: told=[function]."
    if isinstance(told, str | bytes | Mapping) or not isinstance(told, Iterable):
        raise ConfigurationError(f"told= takes a list of functions, not {shown(told)}.", fix=fix)
    functions = list(told)
    for function in functions:
        if not callable(function):
            raise ConfigurationError(f"told= holds {shown(function)}, no function.", fix=fix)
        if is_async_callable(function):
            raise ConfigurationError(
                f"told= holds {shown(function)}, which is asynchronous, and nothing would await "
                "it.",
                fix=fix,
            )
    return functions


def notifiers_given(notifiers: Mapping[str, Notifier] | None) -> dict[str, Notifier]:
    """Return the notifiers of a daemon, by name.

    Raises:
        ConfigurationError: they are no names with plain functions.
    """
    if notifiers is None:
        return {}
    fix = "Give each a name under which it is kept who was told: notifiers={'mail': function}."
    if not isinstance(notifiers, Mapping):
        raise ConfigurationError(
            f"notifiers= takes functions by their names, not {shown(notifiers)}.", fix=fix
        )
    for name, notifier in notifiers.items():
        if not isinstance(name, str) or not name:
            raise ConfigurationError(f"{shown(name)} is no name of a notifier.", fix=fix)
        check_notifier(name, notifier)
    return dict(notifiers)


def name_given(by: str) -> str:
    """Return who recovers, for the record.

    Raises:
        ConfigurationError: it names nobody.
    """
    if blank(by):
        raise ConfigurationError(
            f"by= says who recovers, for the record; {shown(by)} names nobody.",
            fix="Give a text such as by='night shift', or leave it out.",
        )
    return by


def text(what: str, value: object) -> str:
    """Return a text that was given.

    Raises:
        ConfigurationError: it is none.
    """
    if not isinstance(value, str):
        raise ConfigurationError(f"{what} is a text, not {shown(value)}.")
    return value


def called_after(after: Callable[[Any], object] | None) -> Callable[[Any], object] | None:
    """Return what is called after each pass.

    Raises:
        ConfigurationError: it is no plain function.
    """
    if after is not None and (not callable(after) or is_async_callable(after)):
        raise ConfigurationError(
            f"after= takes a plain function of a pass's result, not {shown(after)}."
        )
    return after
