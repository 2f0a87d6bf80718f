"""Prints worlds side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

NOTHING = "-"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return rows in columns of even width, under their heads."""
    lines = [list(heads), *[list(row) for row in rows]]
    widths = [max(len(line[n]) for line in lines) for n in range(len(heads))]
    lines.insert(1, ["-" * width for width in widths])
    padded = (
        "  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)) for line in lines
    )
    return "\n".join(f"  {line}".rstrip() for line in padded)


def side_by_side(heads: Sequence[str], *worlds: dict[str, str]) -> str:
    """Return what several looks at the world saw, one line for each thing.

    Args:
        heads: the first column's head, then one for each look.
        worlds: what each look saw; what one did not see is shown as a dash.
    """
    things = sorted({thing for world in worlds for thing in world})
    rows = [[thing, *[world.get(thing, NOTHING) for world in worlds]] for thing in things]
    return table(heads, rows)


def grown(before: dict[str, int], after: dict[str, int]) -> str:
    """Return what systems that never forget have more than before, in words."""
    more = {thing: after[thing] - before.get(thing, 0) for thing in sorted(after)}
    said = [f"{count} {thing}{'' if count == 1 else 's'}" for thing, count in more.items() if count]
    return ", ".join(said) or "nothing"
