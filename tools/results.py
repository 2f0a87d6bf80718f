"""Counts what the test runs said, from the JUnit files that pytest wrote.

Rules of this part:

- A file that cannot be read counts as no file: its stage's exit code still decides.
- Errors of fixtures and of collection are failures.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Counts:
    """How many tests passed, failed and were skipped."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped
        )

    def __str__(self) -> str:
        text = f"{self.passed} passed, {self.failed} failed"
        return f"{text}, {self.skipped} skipped" if self.skipped else text


def read(folder: Path) -> Counts:
    """Return the sum over all JUnit files in a folder.

    Args:
        folder: where `--junitxml` wrote; it may be missing.
    """
    return sum((_file(path) for path in sorted(folder.glob("*.xml"))), Counts())


def _file(path: Path) -> Counts:
    try:
        suites = list(ET.parse(path).getroot().iter("testsuite"))
    except (OSError, ET.ParseError):
        return Counts()
    total = _sum(suites, "tests")
    failed = _sum(suites, "failures") + _sum(suites, "errors")
    skipped = _sum(suites, "skipped")
    return Counts(total - failed - skipped, failed, skipped)


def _sum(suites: list[ET.Element], attribute: str) -> int:
    return sum(int(suite.get(attribute, "0")) for suite in suites)
