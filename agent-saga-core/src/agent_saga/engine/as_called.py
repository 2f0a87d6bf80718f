"""The arguments of a call as they were when it was made, for whoever undoes or asks about it.

Rules of this part:

- A tool may change what it was given while it runs. What undoes it, and who is asked about it, get
  what the log recorded, in this process as in any other.
- Values that cannot change cost nothing. Of others their recorded form is kept, and read back when
  somebody asks. A value that the log cannot hold as it is (an object, a secret) is given as it is:
  nothing else is known of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from agent_saga.wal.encoding import Fragment, decode, masked

__all__ = ["FIXED", "Kept", "as_called", "kept"]

FIXED: Final = frozenset({str, int, float, bool, bytes, type(None)})
"""Types whose values cannot change."""

Kept = Fragment | dict[str, Fragment] | None
"""The recorded form of arguments: whole, or of those that come back as they were; or nothing."""


def kept(arguments: Mapping[str, Any], whole: Fragment | None, *, faithful: bool) -> Kept:
    """Return what is to be kept of arguments before they can change; None if they cannot.

    Args:
        arguments: by name.
        whole: their recorded form, if there is one.
        faithful: it comes back equal.
    """
    if FIXED.issuperset(map(type, arguments.values())):
        return None
    if whole is None:
        whole, faithful = masked(arguments)
    if faithful:
        return whole
    parts = {name: masked(value) for name, value in arguments.items() if type(value) not in FIXED}
    return {name: part for name, (part, equal) in parts.items() if equal}


def as_called(arguments: Mapping[str, Any], recorded: Kept) -> dict[str, Any]:
    """Return arguments as they were when they were kept, in a dict of their own."""
    if recorded is None:
        return dict(arguments)
    if isinstance(recorded, dict):
        return {**arguments, **{name: decode(part) for name, part in recorded.items()}}
    whole: dict[str, Any] = decode(recorded)  # type: ignore[assignment]
    return whole
