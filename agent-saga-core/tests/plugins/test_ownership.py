"""Who registered what: module, distribution, version."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agent_saga.plugins import releases
from agent_saga.plugins.ownership import Owner, owner_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from plugins.conftest import Install


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    for cached in (releases.release_of, releases._distributions):
        cached.cache_clear()
    yield
    for cached in (releases.release_of, releases._distributions):
        cached.cache_clear()


def test_an_installed_module_belongs_to_its_distribution(install: Install) -> None:
    install("acme-payments", "def refund(): ...", module="payments", version="2.1")
    owner = owner_of(importlib.import_module("payments").refund)
    assert (owner.module, owner.distribution, owner.version) == ("payments", "acme-payments", "2.1")
    assert str(owner) == "payments.refund (acme-payments 2.1)"


def test_an_editable_installation_is_found_by_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, site = tmp_path / "project" / "src", tmp_path / "site"
    info = site / "acme_tools-0.3.dist-info"
    for folder in (source, info):
        folder.mkdir(parents=True)
    (source / "tools_of_acme.py").write_text("def undo(): ...")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-tools\nVersion: 0.3\n")
    told = {"url": (tmp_path / "project").as_uri(), "dir_info": {"editable": True}}
    (info / "direct_url.json").write_text(json.dumps(told))
    for folder in (source, site):
        monkeypatch.syspath_prepend(str(folder))
    owner = owner_of(importlib.import_module("tools_of_acme").undo)
    assert (owner.distribution, owner.version) == ("acme-tools", "0.3")
    del sys.modules["tools_of_acme"]


@pytest.mark.parametrize("told", ["", "[]", "{", '{"url": 1}', '{"dir_info": {}}'])
def test_a_broken_direct_url_is_no_witness(told: str) -> None:
    assert releases._editable_folder(told) is None


def test_the_users_own_program_belongs_to_no_distribution() -> None:
    assert owner_of(len).distribution == ""
    assert Owner("__main__").version == ""
    assert str(Owner("no_such_module_anywhere")) == "no_such_module_anywhere"


def test_an_instance_belongs_to_the_module_of_its_class() -> None:
    assert owner_of(Path()).module.startswith("pathlib")
