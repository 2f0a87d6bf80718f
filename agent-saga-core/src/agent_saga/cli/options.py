"""The options that commands share, written once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from agent_saga.controls.humans.names import blank, seen

__all__ = [
    "by_option",
    "demand",
    "import_option",
    "leave_missing_option",
    "log_options",
    "named",
    "reason_option",
]

F = TypeVar("F", bound=Callable[..., Any])


def named(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Refuse an empty name: the beginning of an id may be given, and nothing begins all of them."""
    if value is not None and not value.strip():
        raise click.BadParameter("it is empty; name one.", context, parameter)
    return value


def _person(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and blank(value):
        raise click.BadParameter("it names nobody; say who you are.", context, parameter)
    return None if value is None else value.strip()


def _said(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and not seen(value.strip()):
        raise click.BadParameter("it is blank; it is recorded, so say why.", context, parameter)
    return None if value is None else value.strip()


def by_option(
    name: str = "--by",
    about: str = "Who asks for it; recorded.",
    *,
    required: bool = True,
) -> Callable[[F], F]:
    """Return the option that names the person who acts; one that names nobody is refused."""
    return click.option(name, required=required, metavar="WHO", callback=_person, help=about)


def reason_option(about: str = "Why; recorded.", *, required: bool = True) -> Callable[[F], F]:
    """Return the option that says why a person acts; a blank reason is refused."""
    return click.option("--reason", required=required, metavar="WHY", callback=_said, help=about)


def demand(**given: str) -> None:
    """Refuse a call without options that are needed unless another one is given.

    Args:
        given: what stood behind each option; empty for one that was left out.

    Raises:
        MissingParameter: one is empty.
    """
    for option, value in given.items():
        if not value:
            raise click.MissingParameter(param_hint=f"'{option}'", param_type="option")


def log_options(command: F) -> F:
    """Add `--wal-path` and `--json`, which every command takes."""
    as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
    wal_path = click.option(
        "--wal-path",
        metavar="PATH",
        help="The log; otherwise AGENT_SAGA_WAL, otherwise ./agent-saga.wal.",
    )
    return wal_path(as_json(command))


def leave_missing_option(command: F) -> F:
    """Add `--leave-missing`, which commands that recover take."""
    option = click.option(
        "--leave-missing",
        is_flag=True,
        help="Act although an inverse is not registered here: undo what came after it, and leave "
        "it and what came before to a human.",
    )
    return option(command)


def import_option(command: F) -> F:
    """Add `--import`, which commands that need handlers take."""
    option = click.option(
        "--import",
        "modules",
        metavar="MODULE",
        multiple=True,
        help="Load a module for the handlers it registers; may be repeated.",
    )
    return option(command)
