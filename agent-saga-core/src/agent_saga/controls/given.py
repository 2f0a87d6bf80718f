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
from typing import Final, TypeVar

from agent_saga.controls.humans.names import seen
from agent_saga.errors import ConfigurationError

__all__ = ["YEAR", "flag", "name", "seconds", "several", "words"]

T = TypeVar("T")
YEAR: Final = 366 * 86_400.0
"""The longest time that a control takes, in seconds, where it says nothing else."""


def words(what: str, value: object, *, longest: int = 1000) -> str:
    """Return a text that says something, without the blanks around it.

    Raises:
        ConfigurationError: it is no text, is blank, or is too long.
    """
    if not isinstance(value, str) or not value.strip() or len(value) > longest:
        raise ConfigurationError(
            f"{what} is a text of 1 to {longest} characters that is not blank, not {shown(value)}."
        )
    return value.strip().encode("utf-8", "backslashreplace").decode()


def name(what: str, value: object, *, longest: int = 200) -> str:
    """Return the name of somebody or something, in which at least one character can be seen.

    Raises:
        ConfigurationError: it is no text, is blank, or is too long.
    """
    given = words(what, value, longest=longest)
    if not seen(given):
        raise ConfigurationError(f"{what} has no visible character: {shown(value)}.")
    return given


def seconds(what: str, value: object, *, longest: float = YEAR, zero: bool = False) -> float:
    """Return a number of seconds above zero, or of zero where that has a meaning.

    Raises:
        ConfigurationError: it is no finite number, is out of range, or is too small to be told.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        least = 0 if zero and value == 0 else 1e-6
        if least <= value <= longest:  # no NaN, and no infinity
            return float(value)
    bound = "of zero or more" if zero else "above zero"
    raise ConfigurationError(
        f"{what} is a number of seconds {bound}, up to {longest:g}, not {shown(value)}."
    )


def flag(what: str, value: object) -> bool:
    """Return True or False.

    Raises:
        ConfigurationError: it is something else, such as the text "false".
    """
    if value is True or value is False:
        return value
    raise ConfigurationError(f"{what} is True or False, not {shown(value)}.")


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


def shown(value: object) -> str:
    """Return a value as messages show it: short, whatever it is."""
    try:
        text = ascii(value)
    except Exception:
        text = f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:59]}…"
