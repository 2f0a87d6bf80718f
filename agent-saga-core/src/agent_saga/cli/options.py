"""The options that commands share, written once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

__all__ = ["import_option", "leave_missing_option", "log_options", "named"]

F = TypeVar("F", bound=Callable[..., Any])


def named(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Refuse an empty name: the beginning of an id may be given, and nothing begins all of them."""
    if value is not None and not value.strip():
        raise click.BadParameter("it is empty; name one.", context, parameter)
    return value


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
        help="Act although an inverse is not registered here; what needs it is left to a human.",
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
