"""The manifest on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cli.conftest import Cli


def test_what_holds_and_what_is_not_claimed_are_both_told(cli: Cli) -> None:
    run = cli("guarantees")
    assert run.code == 0
    assert "Guaranteed:\n" in run.out
    assert "LIFE-1 (prevented): " in run.out
    assert "Not claimed:\n  NOT-1: " in run.out


def test_the_manifest_is_machine_readable_and_versioned(cli: Cli) -> None:
    told = cli("guarantees", "--json").document
    assert told["version"] == 1
    assert told["package"]
    ids = [entry["id"] for entry in told["guarantees"]]
    assert "LIFE-1" in ids
    assert len(ids) == len(set(ids))
    assert told["not_claimed"]
