"""Real installed distributions with entry points, made in a temporary folder."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from agent_saga.plugins.manager import PluginManager
from agent_saga.plugins.registry import Handlers

if TYPE_CHECKING:
    from pathlib import Path

Install = Callable[..., None]
Manage = Callable[..., PluginManager]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install a distribution whose one module is a plugin."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))

    def make(
        name: str, source: str, *, entry: str | None = None, module: str = "", version: str = "1.0"
    ) -> None:
        module = module or name.replace("-", "_")
        (site / f"{module}.py").write_text(dedent(source))
        info = site / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "RECORD").write_text(f"{module}.py,,\n")
        (info / "entry_points.txt").write_text(f"[agent_saga]\n{entry or name} = {module}\n")
        monkeypatch.delitem(sys.modules, module, raising=False)
        importlib.invalidate_caches()

    return make


@pytest.fixture
def manage() -> Manage:
    """Return a manager with registries of its own and an environment of its own."""

    def make(builtins: dict[str, object] | None = None, **environ: str) -> PluginManager:
        return PluginManager(builtins, environ=environ, handlers=Handlers())

    return make
