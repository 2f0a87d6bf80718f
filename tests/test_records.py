"""Decision records: numbered without gaps, complete, and all in the index."""

from __future__ import annotations

import re

import pytest

from tools import tree

FOLDER = tree.ROOT / "docs" / "adr"
RECORDS = sorted(FOLDER.glob("[0-9]*.md"))


def headings(path):
    return re.findall(r"^## (.*)$", path.read_text("utf-8"), re.MULTILINE)


def test_they_are_numbered_from_one_without_gaps():
    assert [int(path.name[:4]) for path in RECORDS] == list(range(1, len(RECORDS) + 1))


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_a_record_follows_the_template_and_stands_in_the_index(path):
    text = path.read_text("utf-8")
    assert text.startswith(f"# {path.name[:4]}: ")
    assert re.search(r"^- Status: (proposed|accepted|replaced by \d{4})$", text, re.MULTILINE)
    assert re.search(r"^- Date: \d{4}-\d{2}-\d{2}$", text, re.MULTILINE)
    assert headings(path) == headings(FOLDER / "template.md")
    assert f"]({path.name})" in (FOLDER / "README.md").read_text("utf-8")
