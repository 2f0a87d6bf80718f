"""Turns a docstring in the style of this project into Markdown.

Sections such as `Args:` become lists, indented text becomes a block, the rest stays as it is.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator

_SECTION = re.compile(
    r"(?P<title>Args|Attributes|Returns|Yields|Raises|Rules of this part)(?P<more>[^:\n]*):"
)
_ENTRY = re.compile(r"(?P<names>[\w*]+(?:, [\w*]+)*): (?P<text>.*)", re.DOTALL)


def markdown(thing: object) -> str:
    """Return an object's docstring as Markdown; empty when it has none of its own."""
    text = inspect.cleandoc(getattr(thing, "__doc__", None) or "")
    return "\n\n".join(_paragraph(part) for part in _parts(text)).strip()


def first_line(thing: object) -> str:
    """Return the first line of an object's docstring."""
    return inspect.cleandoc(getattr(thing, "__doc__", None) or "").partition("\n")[0]


def _parts(text: str) -> Iterator[str]:
    """Yield paragraphs; a section's indented lines belong to its title."""
    part: list[str] = []
    for line in text.splitlines():
        begins = line and not line.startswith(" ") and (not part or part[-1] == "")
        section = part and _SECTION.fullmatch(part[0])
        if (begins or (section and line and not line.startswith(" "))) and part:
            yield "\n".join(part).rstrip()
            part = []
        part.append(line)
    if part:
        yield "\n".join(part).rstrip()


def _paragraph(part: str) -> str:
    head, _, rest = part.partition("\n")
    section = _SECTION.fullmatch(head)
    body = textwrap.dedent(rest).strip("\n")
    if section:
        title = f"**{section['title']}{section['more']}**"
        return f"{title}\n\n{_section(body)}"
    if rest and rest.startswith("\n    "):
        return f"{head}\n\n```text\n{body}\n```"
    return part


def _section(body: str) -> str:
    entries = re.split(r"\n(?=\S)", body)
    if not all(_ENTRY.fullmatch(entry) for entry in entries):
        return " ".join(line.strip() for line in body.splitlines())
    return "\n".join(_entry(entry) for entry in entries)


def _entry(entry: str) -> str:
    found = _ENTRY.fullmatch(entry)
    if found is None:
        return entry
    names = ", ".join(f"`{name}`" for name in found["names"].split(", "))
    text = " ".join(line.strip() for line in found["text"].splitlines())
    return f"- {names}: {text}"
