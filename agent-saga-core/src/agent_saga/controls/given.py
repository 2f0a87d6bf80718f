"""What programs and people give to controls, checked where it is given.

Rules of this part:

- What cannot be used is refused at once, by an error that names it: a control that was made of
  something else would hold for nothing, or fail while it judges.
- Nothing is taken for what it is not: "false" is no False, True is no number, and a text is no list
  of its characters.
- A name or a reason without a visible character is blank. What no store can carry (a lone
  surrogate, as a terminal of another encoding gives) is written as an escape, never refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from agent_saga.controls.humans.names import seen
from agent_saga.domain.durations import YEAR, seconds, shown
from agent_saga.domain.flags import flag
from agent_saga.errors import ConfigurationError

__all__ = ["YEAR", "flag", "name", "seconds", "several", "shown", "tool", "words"]

T = TypeVar("T")


def words(what: str, value: object, *, longest: int = 1000) -> str:
    """Return a text in which something can be seen, without the blanks around it.

    Raises:
        ConfigurationError: it is no text, is blank, or is too long.
    """
    if not isinstance(value, str) or not value.strip() or len(value) > longest:
        raise ConfigurationError(
            f"{what} is a text of 1 to {longest} characters that is not blank, not {shown(value)}."
        )
    if not seen(value):
        raise ConfigurationError(f"{what} has no visible character: {shown(value)}.")
    return value.strip().encode("utf-8", "backslashreplace").decode()


def name(what: str, value: object) -> str:
    """Return the name of somebody or something; raises as `words` does."""
    return words(what, value, longest=200)


def tool(what: str, value: object) -> str:
    """Return the name of a tool, or the beginning of names if it ends in `*`.

    Raises:
        ConfigurationError: it is neither, so that it would stand for no tool.
    """
    pattern = words(what, value, longest=300)
    if "*" in pattern[:-1]:
        raise ConfigurationError(
            f"{what} is {shown(pattern)}, which stands for no tool.",
            fix="Write a name, or the beginning of names with a * at its end.",
        )
    kind, _, rest = pattern.partition(":")
    if kind == "tool":  # the form of a halt's target, which is none here
        raise ConfigurationError(f"{what} is {shown(pattern)}.", fix=f"Write {rest or 'a name'}.")
    if kind == "tag":
        raise ConfigurationError(
            f"{what} is {shown(pattern)}, which stands for a tag.",
            fix=f"Name the tag by itself: tag = {shown(rest)}, or tag_is({shown(rest)}).",
        )
    return pattern


def several(what: str, value: object, kind: type[T]) -> tuple[T, ...]:
    """Return things of one kind; a single one may stand by itself.

    Raises:
        ConfigurationError: it is neither such a thing nor a list of them.
    """
    if isinstance(value, kind):
        return (value,)
    found = tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else None
    if found is None or not all(isinstance(one, kind) for one in found):
        raise ConfigurationError(f"{what} takes {kind.__name__}s, not {shown(value)}.")
    return found
