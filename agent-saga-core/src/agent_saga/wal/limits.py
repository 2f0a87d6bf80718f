"""How large one record may be: the only table of these bounds.

Rules of this part:

- What is larger is cut in forward values (and the value is then not *faithful*), and refused in
  compensation arguments.
- Texts are masked before they are cut: a secret that is cut in half no longer looks like one.
"""

from __future__ import annotations

from typing import Final

MAX_DEPTH: Final = 64
"""Containers within containers."""

MAX_TEXT: Final = 256 * 1024
"""Characters of one text, and bytes of one bytes value."""

MAX_ITEMS: Final = 100_000
"""Values in one payload."""

MAX_PAYLOAD: Final = 1024 * 1024
"""Bytes of one encoded value."""

MAX_LINE: Final = 16 * MAX_PAYLOAD
"""Bytes of one record that a reader looks at; a longer line is not a record."""

MASK_MARGIN: Final = 16 * 1024
"""Characters behind the cut of a text that are still looked at for secrets."""
