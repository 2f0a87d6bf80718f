"""What a kill or a power loss can leave of lines, told by their bytes alone.

Rules of this part:

- Of a write that was not synced, any sectors may be missing: they read as zeros. A write that was
  cut short leaves the beginning of a line, without its line break, and nothing behind it.
- So a line that has its line break, and zeros neither within it nor before it, was written whole.
  If it is no record that fits, it was changed afterwards, also at the end of a log: it is damage.
- Zeros within a line, or before what is left of one, begin and end where sectors do.
- A line's own line break may be what was changed: a whole record with one byte behind it is no
  beginning of a line.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from agent_saga.domain.records import FORMAT
from agent_saga.wal.format import parsed

if TYPE_CHECKING:
    from agent_saga.wal.format import Record
    from agent_saga.wal.lines import Line

__all__ = ["may_be_torn"]

_SECTOR: Final = 512
_BEGINNING: Final = b'{"v":%d,"q":' % FORMAT
_zeros: Final = re.compile(b"\0+").finditer


def may_be_torn(line: Line, record: Record | None) -> bool:
    """Say whether a line that is not the next record can be what a sudden end has left.

    Args:
        line: the line.
        record: the record that it holds, if what comes before that is missing; else None.
    """
    if line.long:
        return True  # its content is not known
    behind_a_loss = line.zeros > 0 and _start(line) % _SECTOR == 0
    if record is not None:
        return behind_a_loss or (line.segment > 0 and line.offset == line.zeros == 0)
    if not line.ended:
        begins = _BEGINNING.startswith(line.data[: len(_BEGINNING)])
        return (begins or behind_a_loss) and parsed(line.data[:-1]) is None
    if line.zeros and not behind_a_loss:
        return False
    return _has_lost_sectors(line) or (behind_a_loss and b"\0" not in line.data)


def _start(line: Line) -> int:
    """Return where its first byte stands that is not zero."""
    return line.behind - line.ended - len(line.data)


def _has_lost_sectors(line: Line) -> bool:
    """Say whether zeros stand within a line, and only where sectors may have been lost."""
    start = _start(line)
    runs = [run.span() for run in _zeros(line.data)]
    return bool(runs) and not any((start + at) % _SECTOR for run in runs for at in run)
