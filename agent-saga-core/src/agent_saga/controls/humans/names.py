"""Who is who: names of people and agents, compared as a person would.

Rules of this part:

- Case, width, surrounding marks, invisible characters and letters of another script that look like
  Latin ones make nobody another person; so nobody approves their own request under a name that only
  looks different. Two people whose names look alike are told apart by nobody: one has to add
  something, such as an address.
- A name without a visible character is blank, and nobody.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import Final

__all__ = ["blank", "one_of", "person", "seen"]

_INVISIBLE: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs", "Mn", "Me"})
_FILLERS: Final = frozenset("\u115f\u1160\u2800\u3164\uffa0")
"""Characters that count as letters or signs, and show nothing."""

_LOOK_ALIKE: Final = {
    ord(letter): latin
    for letters, latins in (
        ("АВЕКМНОРСТУХІЈЅԚԜҺӀ", "ABEKMHOPCTYXIJSQWHI"),
        ("авԁекмнһіјӏорԛсѕтуѵԝх", "abdekmhhijlopqcstyvwx"),
        ("ΑΒΕΖΗΙΚΜΝΟΡΤΥΧ", "ABEZHIKMNOPTYX"),  # noqa: RUF001
        ("αικνορτυχϲϳ", "aikvoptuxcj"),
        ("ıɑɡ", "iag"),  # noqa: RUF001
    )
    for letter, latin in zip(letters, latins, strict=True)
}
"""Cyrillic, Greek and other letters that look like a Latin one."""

_LONGEST: Final = 300


def person(name: object) -> str:
    """Return the form in which a name is compared; empty for what names nobody."""
    if not isinstance(name, str) or len(name) > _LONGEST:
        return ""
    plain = seen(unicodedata.normalize("NFKC", name).translate(_LOOK_ALIKE).casefold())
    inner = [at for at, c in enumerate(plain) if unicodedata.category(c)[0] not in "PS"]
    return plain[inner[0] : inner[-1] + 1] if inner else ""


def seen(text: str) -> str:
    """Return the characters of a text that show something."""
    return "".join(
        c for c in text if c not in _FILLERS and unicodedata.category(c) not in _INVISIBLE
    )


def blank(name: object) -> bool:
    """Say whether a name names nobody."""
    return not person(name)


def one_of(name: object, names: Iterable[object]) -> bool:
    """Say whether somebody is among others."""
    who = person(name)
    return bool(who) and any(who == person(other) for other in names)
