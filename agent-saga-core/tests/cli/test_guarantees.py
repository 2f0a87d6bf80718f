"""The manifest on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agent_saga.errors import ConfigurationError
from agent_saga.runtime import manifest as manifest_module
from agent_saga.runtime.manifest import manifest, own_guarantees

if TYPE_CHECKING:
    from pathlib import Path

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
    assert told["agent_saga_core"]
    entry = next(entry for entry in told["guarantees"] if entry["id"] == "LIFE-1")
    assert set(entry) == {"id", "sentence", "level", "where", "package"}
    assert told["not_claimed"]


def test_plugins_add_theirs() -> None:
    told = manifest([*own_guarantees(), {"id": "ACME-1", "sentence": "x"}])
    assert told["guarantees"][-1]["id"] == "ACME-1"


def test_a_file_that_cannot_be_read_is_not_claimed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "guarantees.toml").write_text("[[broken")
    monkeypatch.setattr(manifest_module.resources, "files", lambda package: tmp_path)
    with pytest.raises(ConfigurationError):
        own_guarantees()
