"""Texts as a terminal may show them.

Rules of this part:

- Texts were chosen by models, tools and other programs. What does not print, such as an escape
  sequence or a character that turns the line round, is written as an escape.
"""

from __future__ import annotations

__all__ = ["printable"]


def printable(value: object) -> str:
    """Return a text on one line, with what does not print as an escape."""
    text = str(value)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
