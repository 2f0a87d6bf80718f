"""The reference is what the code says now."""

from __future__ import annotations

import pytest

from tools import frameworks, places, reference
from tools.docstrings import markdown
from tools.records import SAYS

HINT = "The code says something else now: python -m tools.reference"
PAGES = reference.pages()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_up_to_date(name):
    assert (reference.FOLDER / name).read_text("utf-8") == PAGES[name], HINT


def test_there_is_no_other_page():
    assert {path.name for path in reference.FOLDER.iterdir()} == set(PAGES)


@pytest.mark.parametrize("package", places.frameworks())
def test_every_frameworks_package_is_put_to_every_case(package):
    found = {case for way in frameworks.ways(package) for case in way.cases}
    kit = {case for part in frameworks.PARTS.values() for case in frameworks.cases_of(part)}
    assert len(kit) > 45
    assert found == kit


def test_every_way_to_use_a_framework_is_told_and_no_other():
    found = {way.name for package in places.frameworks() for way in frameworks.ways(package)}
    assert found == set(frameworks.WAYS), "tell them in tools/frameworks.py"


def test_every_record_is_told():
    untold = set(reference.event_names()) - set(SAYS)
    assert not untold, "tell them in tools/records.py"


def test_a_docstring_becomes_markdown():
    def function():
        """Do it.

        Args:
            one, two: both
                of them.
            three: the last.

        Raises:
            ValueError: it cannot be done.

        Returns:
            What was done.

            example(1)
        """

    assert markdown(function).splitlines() == [
        "Do it.",
        "",
        "**Args**",
        "",
        "- `one`, `two`: both of them.",
        "- `three`: the last.",
        "",
        "**Raises**",
        "",
        "- `ValueError`: it cannot be done.",
        "",
        "**Returns**",
        "",
        "What was done.  example(1)",
    ]


def test_long_signatures_are_broken_between_parameters():
    def function(
        first: dict[str, int], second: int = 1, *, third: str = "a, b", **others: object
    ) -> None: ...

    assert reference.signature(function).splitlines() == [
        "(",
        "    first: dict[str, int],",
        "    second: int = 1,",
        "    *,",
        "    third: str = 'a, b',",
        "    **others: object,",
        ") -> None",
    ]
