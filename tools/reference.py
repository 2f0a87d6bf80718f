"""Writes `docs/reference/` from the code: the public door, errors, settings, records, and more.

Rules of this part:

- Nothing is told here that the code does not say: texts come from docstrings and tables.
- What differs between Python versions is left out.
- `tests/docs/test_reference.py` compares the pages with what this program would write.

Called as `python -m tools.reference`.
"""

from __future__ import annotations

import copy
import dataclasses
import enum
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

import agent_saga
from agent_saga import errors
from agent_saga.cli.exits import MEANINGS
from agent_saga.cli.main import program
from agent_saga.cli.recoveryd import program as recoveryd
from agent_saga.domain.durations import YEAR
from agent_saga.domain.records import NEEDS, Ev, Need
from agent_saga.engine.tool import declare
from agent_saga.plugins import specs
from agent_saga.runtime.settings import defaults_table
from tools import frameworks
from tools.docstrings import first_line, markdown
from tools.records import SAYS

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "reference"
_NOTE = "<!-- Written by `python -m tools.reference` from the code; do not edit. -->"


def main() -> int:
    """Write every page."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, "utf-8")
        print(f"Wrote {FOLDER / name}")
    return 0


def pages() -> dict[str, str]:
    """Return the text of every page by its file's name."""
    made: dict[str, Callable[[], Iterator[str]]] = {
        "api.md": _api,
        "errors.md": _errors,
        "settings.md": _settings,
        "records.md": _records,
        "commands.md": _commands,
        "frameworks.md": frameworks.page,
        "hooks.md": _hooks,
    }
    return {name: "\n\n".join([_NOTE, *make()]) + "\n" for name, make in made.items()}


# --- the public door


def _api() -> Iterator[str]:
    yield "# The public door"
    yield (
        "What `from agent_saga import …` gives, and all of it. Errors have [their own "
        "page](errors.md); what a tool can be told stands under "
        "[the options of a tool](#the-options-of-a-tool)."
    )
    names = [name for name in agent_saga.__all__ if not _is_error(getattr(agent_saga, name))]
    yield "\n".join(f"- [`{name}`](#{name.lower()}): {_told(name)}" for name in names)
    yield "## The options of a tool"
    yield "What `kit.tool(…)`, `kit.safe_tool(…)`, `tool(…)` and `saga.execute(…)` take."
    yield _code(f"(…{signature(declare)[1:]}")
    yield markdown(declare).partition("\n\n")[2]
    for name in names:
        yield from _thing(name, getattr(agent_saga, name))


def _told(name: str) -> str:
    return first_line(_speaker(name))


def _speaker(name: str) -> Any:
    """Return what tells about a name: itself, or its module where it is no work of ours."""
    value = getattr(agent_saga, name)
    if isinstance(value, type) or inspect.isfunction(value):
        return value
    homes: dict[str, str] = vars(agent_saga)["_HOME"]
    return sys.modules[homes[name]]


def _is_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)


def _thing(name: str, value: Any) -> Iterator[str]:
    yield f"## {name}"
    if not isinstance(value, type):
        if inspect.isfunction(value):
            yield _code(f"{_async(value)}{name}{signature(value)}")
        yield markdown(_speaker(name))
        return
    if "__init__" in vars(value) or dataclasses.is_dataclass(value):
        yield _code(f"{name}{signature(value)}")
    yield markdown(value)
    if issubclass(value, enum.Enum):
        yield f"Its members: {', '.join(f'`{member}`' for member in value.__members__)}."
    for member in sorted(vars(value)):
        if not member.startswith("_"):
            yield from _member(name, member, inspect.getattr_static(value, member))


def _member(owner: str, name: str, member: Any) -> Iterator[str]:
    function = getattr(member, "__func__", member)
    if isinstance(member, property):
        yield f"### {owner}.{name}"
        yield markdown(member)
    elif inspect.isfunction(function):
        yield f"### {owner}.{name}()"
        yield _code(f"{_async(function)}{name}{signature(function)}")
        yield markdown(function)


def _code(text: str) -> str:
    return f"```text\n{text}\n```"


def _async(function: object) -> str:
    return "await " if inspect.iscoroutinefunction(function) else ""


class _Plain:
    """An annotation that is shown as it was written, without quotes."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def signature(function: Callable[..., Any]) -> str:
    """Return a signature as it was written; on several lines when it is long."""
    given = inspect.signature(function)
    shown = [_shown(p) for p in given.parameters.values() if p.name not in ("self", "cls")]
    result = copy.copy(given).replace(
        parameters=shown, return_annotation=_plain(given.return_annotation)
    )
    text = str(result)
    if len(text) <= 72:
        return text
    lines = [f"    {part}," for part in _parts(shown)]
    _, arrow, answer = text.rpartition(" -> ")
    return "\n".join(["(", *lines, f"){arrow}{answer}"])


def _parts(parameters: list[inspect.Parameter]) -> Iterator[str]:
    """Yield parameters as they stand in a signature, with the star before those by keyword."""
    starred = False
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            yield "*"
        starred = starred or parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        yield str(parameter)


def _shown(parameter: inspect.Parameter) -> inspect.Parameter:
    default = parameter.default
    if isinstance(default, enum.Enum):
        default = _Plain(f"{type(default).__name__}.{default.name}")
    elif inspect.isfunction(default):
        default = _Plain("…")
    return parameter.replace(annotation=_plain(parameter.annotation), default=default)


def _plain(annotation: Any) -> Any:
    return _Plain(annotation) if isinstance(annotation, str) else annotation


# --- hooks of plugins


def _hooks() -> Iterator[str]:
    yield "# Hooks"
    yield (
        "What a plugin can do, for its author; [Write a plugin](../how-to/write-a-plugin.md) shows "
        "one whole. A hook is a plain function with `@hookimpl`, in a module that the entry-point "
        "group `agent_saga` names."
    )
    yield markdown(specs).partition("\n\n")[2]
    hooks = [(name, getattr(specs, name)) for name in specs.HOOKS]
    yield _table(
        ("hook", "what it does"),
        [(f"[`{name}`](#{name})", first_line(hook)) for name, hook in hooks],
    )
    for name, hook in hooks:
        yield f"## {name}"
        yield _code(f"{name}{signature(hook)}")
        yield markdown(hook)


# --- errors, settings, records, commands


def _errors() -> Iterator[str]:
    yield "# Errors"
    yield "One tree. A code never changes its meaning; `str(error)` has it, and what to do next."
    classes = [thing for _, thing in sorted(vars(errors).items()) if _is_error(thing)]
    coded = sorted((c for c in classes if hasattr(c, "code")), key=lambda c: (c.code, c.__name__))
    rows = [
        (f"`{c.code}`", f"[`{c.__name__}`](#{c.__name__.lower()})", first_line(c)) for c in coded
    ]
    yield _table(("code", "error", "what happened"), rows)
    for error in coded:
        yield f"## {error.__name__}"
        door = (
            "" if error.__name__ in agent_saga.__all__ else " Import it from `agent_saga.errors`."
        )
        bases = ", ".join(f"`{base.__name__}`" for base in error.__bases__)
        yield f"`{error.code}`, a kind of {bases}.{door}"
        yield markdown(error)


def _settings() -> Iterator[str]:
    yield "# Settings"
    yield (
        "Every default. A setting is given by its environment variable, or as "
        "`AgentKit(…, settings=Settings(name=value))`; `agent-saga doctor` prints what holds. "
        f"A span of time is a number of seconds, at most {YEAR:.0f} (a year of 366 days)."
    )
    rows = [
        (f"`{row.name}`", f"`{row.variable}`", row.default, row.meaning) for row in defaults_table()
    ]
    yield _table(("setting", "environment variable", "default", "what it decides"), rows)


def _records() -> Iterator[str]:
    yield "# Records"
    yield (
        "What stands in the log, one line of JSON each. *Durable*: on disk before the program goes "
        "on. *Handed over*: with the operating system before the program goes on, so that a killed "
        "process loses nothing."
    )
    rows = [(f"`{name}`", SAYS.get(name, ""), _need(NEEDS[name])) for name in event_names()]
    yield _table(("record", "what it says", "needs"), rows)


def event_names() -> list[str]:
    """Return the names of all records, in the order of the code."""
    return [value for name, value in vars(Ev).items() if name.isupper()]


def _need(need: Need) -> str:
    return "durable" if need is Need.DURABLE else "handed over"


def _commands() -> Iterator[str]:
    yield "# Commands"
    yield (
        "Every command takes `--help` and tells which log it looked at. With `--json` the standard "
        "output is one JSON document and nothing else, also when the command ends with an error: "
        '`{"error": {"exit": …, "kind": …, "message": …, "fix": …, "code": …}}`, where `fix` is '
        "what to do next and `code` the [error](errors.md)'s. People read the same on the error "
        "stream. `saga-recoveryd --json-logs` writes it as a line of its logs."
    )
    yield (
        "`--by` names the person who acts, and `--reason` says why; where it is asked "
        "for, neither may be blank. `--approver` names the person who decides what an agent asked "
        "for, which nobody does who asks; `--note` is a remark on a decision, and may be left "
        "out. All of them are recorded."
    )
    yield "## Exit codes"
    yield "The same for every command."
    rows = [(f"{code.value}", words, full) for code, (words, full) in MEANINGS.items()]
    yield _table(("code", "in short", "what it says"), rows)
    for name, command in (("agent-saga", program), ("saga-recoveryd", recoveryd)):
        yield from _command(name, command, None)


def _command(name: str, command: click.Command, above: click.Context | None) -> Iterator[str]:
    context = click.Context(command, above, info_name=name, terminal_width=90)
    yield f"## {context.command_path}"
    yield _code(command.get_help(context))
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            if found is not None:
                yield from _command(inner, found, context)


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
