"""Who is who: names of people and agents, compared as a person would.

Rules of this part:

- Case, width, surrounding marks and invisible characters make nobody another person; so nobody
  approves their own request under a name that only looks different.
- A name without a visible character is blank, and nobody.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import Final

__all__ = ["blank", "one_of", "person"]

_INVISIBLE: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs", "Mn", "Me"})
_LONGEST: Final = 300


def person(name: object) -> str:
    """Return the form in which a name is compared; empty for what names nobody."""
    if not isinstance(name, str) or len(name) > _LONGEST:
        return ""
    plain = unicodedata.normalize("NFKC", name).casefold()
    seen = "".join(c for c in plain if unicodedata.category(c) not in _INVISIBLE)
    return seen.lstrip("@")


def blank(name: object) -> bool:
    """Say whether a name names nobody."""
    return not person(name)


def one_of(name: object, names: Iterable[object]) -> bool:
    """Say whether somebody is among others."""
    who = person(name)
    return bool(who) and any(who == person(other) for other in names)
