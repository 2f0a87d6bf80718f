"""Commands that errors and reports tell a person to type: the whole line, for the log in question.

What is told can be pasted: ids and paths are quoted as a shell wants them. What only the person
knows stands in capitals (NAME, WHY, MODULE). A rule that knows no log ends its line with the
command; whoever knows the log completes it (`completed`).
"""

from __future__ import annotations

import re
from typing import Final

__all__ = [
    "completed",
    "queue_command",
    "quoted",
    "recover_command",
    "show_command",
    "told_command",
]

_FILE: Final = "file:"
_COMMAND: Final = re.compile(r"(?:^|: )agent-saga [a-z].*$", re.MULTILINE)


def told_command(words: str, log: str = "") -> str:
    """Return a line to type.

    Args:
        words: what follows `agent-saga`, with everything foreign in it quoted.
        log: the path or the address of the log; empty for the one that the command finds by itself.
    """
    where = f" --wal-path {quoted(log.removeprefix(_FILE))}" if log else ""
    return f"agent-saga {words}{where}"


def completed(text: str, log: str) -> str:
    """Return a text in which every command that ends a line names its log.

    Args:
        text: what is told.
        log: the path or the address of the log.
    """

    def named(found: re.Match[str]) -> str:
        where = f" --wal-path {quoted(log.removeprefix(_FILE))}"
        return found[0] if "--wal-path" in found[0] else f"{found[0]}{where}"

    return _COMMAND.sub(named, text)


def quoted(text: str) -> str:
    """Return a text as one word of a shell, also one that does not print or is no UTF-8."""
    from shlex import quote  # noqa: PLC0415 - only errors and reports need it

    return quote(text) if text.isprintable() else f"$'{''.join(map(_escaped, text))}'"


def _escaped(letter: str) -> str:
    """Return a letter as it stands between `$'` and `'`."""
    if letter in "\\'":
        return f"\\{letter}"
    if letter.isprintable():
        return letter
    foreign = "surrogateescape" if "\udc80" <= letter <= "\udcff" else "surrogatepass"
    return "".join(f"\\{byte:03o}" for byte in letter.encode("utf-8", foreign))


def show_command(saga: str, log: str) -> str:
    """Return the command that tells a saga's story."""
    return told_command(f"show {quoted(saga)}", log)


def queue_command(saga: str, log: str) -> str:
    """Return the command that tells what may stand of a case, and how it can be settled."""
    return told_command(f"queue show {quoted(saga)}", log)


def recover_command(log: str, more: str = "") -> str:
    """Return the command that undoes what dead processes left."""
    return f"{told_command('recover', log)}{more and ' '}{more} --import MODULE"
