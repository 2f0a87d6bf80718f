"""What a halt covers: `*`, `tool:NAME`, `tool:PREFIX.*` or `tag:NAME`, and nothing else.

Rules of this part:

- A scope is read when it is given. One of another form is refused with the nearest form: a halt
  that covers nothing is worse than none, since somebody relies on it.
- Names are compared exactly. A scope of the right form that covers nothing known is told apart, so
  that whoever sets it can be shown the nearest names.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from agent_saga.errors import ConfigurationError

__all__ = [
    "EVERYTHING",
    "TAG",
    "checked",
    "covers",
    "covers_any",
    "declare_tool",
    "declared_tools",
    "nearest",
]

EVERYTHING: Final = "*"
_MOST: Final = 10_000

_declared: Final[dict[str, frozenset[str]]] = {}
_TOOL: Final = "tool:"
TAG: Final = "tag:"
_FORMS: Final = "*, tool:NAME, tool:PREFIX.* or tag:NAME"
_LONGEST: Final = 320


def checked(scope: object) -> str:
    """Return a target if a halt can be for it.

    Raises:
        ConfigurationError: it has another form; the message says which one is near.
    """
    if not isinstance(scope, str) or len(scope) > _LONGEST or not scope.isprintable():
        raise ConfigurationError(
            f"{str(scope)[:40]!r} is no target of a halt.", fix=f"Give {_FORMS}."
        )
    if scope == EVERYTHING:
        return scope
    if scope.startswith(_TOOL):
        return _checked_tool(scope)
    if scope.startswith(TAG):
        name = scope.removeprefix(TAG)
        if not name or name != name.strip() or "*" in name:
            raise _malformed(scope, "a tag is named exactly, as in tag:payments")
        return scope
    raise _malformed(scope, _near_form(scope))


def _checked_tool(scope: str) -> str:
    name = scope.removeprefix(_TOOL)
    stem = name.removesuffix(".*")
    if name == "*":
        raise _malformed(scope, "every tool is *")
    if not stem or stem != stem.strip():
        raise _malformed(scope, "a tool is named exactly, as in tool:wire.send")
    if "*" in stem:
        near = f"tool:{stem.rstrip('*').rstrip('.')}.*"
        raise _malformed(scope, f"a * stands only after a dot, at the end, as in {near}")
    return scope


def _near_form(scope: str) -> str:
    text = scope.strip()
    head, colon, rest = text.partition(":")
    kind = head.strip().lower().removesuffix("s")
    if colon and kind in ("tool", "tag"):
        return f"write {kind}:{rest.strip() or 'NAME'}"
    if text.lower() in ("all", "any", "everything", "tool", "tools", "**", ".*"):
        return "everything is *"
    return f"write tool:{text} for a tool, or tag:{text} for a tag" if text else "it is empty"


def _malformed(scope: str, near: str) -> ConfigurationError:
    return ConfigurationError(
        f"{scope!r} is no target that covers anything: {near}.", fix=f"Give {_FORMS}."
    )


def declare_tool(tool: str, tags: frozenset[str]) -> None:
    """Remember that this process has a tool of this name."""
    if len(_declared) < _MOST:
        _declared[tool] = tags


def declared_tools() -> dict[str, frozenset[str]]:
    """Return the tools that were declared in this process, each with its tags."""
    return dict(_declared)


def covers(scope: str, tool: str, tags: Iterable[str]) -> bool:
    """Say whether a scope covers a tool of this name and these tags."""
    if scope == EVERYTHING:
        return True
    if scope.startswith(TAG):
        return scope.removeprefix(TAG) in tags
    name = scope.removeprefix(_TOOL)
    return tool.startswith(name[:-1]) if name.endswith(".*") else tool == name


def covers_any(scope: str, tools: Iterable[tuple[str, Iterable[str]]]) -> bool:
    """Say whether a scope covers any of these tools, each with its tags."""
    return scope == EVERYTHING or any(covers(scope, tool, tags) for tool, tags in tools)


def nearest(scope: str, tools: Iterable[tuple[str, Iterable[str]]]) -> list[str]:
    """Return the scopes of known tools and tags that are nearest to one that covers none of them.

    Args:
        scope: a scope of the right form.
        tools: the known tools, each with its tags.
    """
    import difflib  # noqa: PLC0415 - slow to load, seldom needed

    known: set[str] = set()
    for tool, tags in tools:
        known.add(f"{_TOOL}{tool}")
        known.update(f"{TAG}{tag}" for tag in tags)
        parts = tool.split(".")
        known.update(f"{_TOOL}{'.'.join(parts[:n])}.*" for n in range(1, len(parts)))
    lowered: dict[str, list[str]] = {}
    for name in sorted(known):
        lowered.setdefault(name.lower(), []).append(name)
    found = difflib.get_close_matches(scope.lower(), lowered, n=3, cutoff=0.75)
    return [name for near in found for name in lowered[near]]
