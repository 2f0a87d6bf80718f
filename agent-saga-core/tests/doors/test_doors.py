"""The thin doors to separately installed packages."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from typing import TYPE_CHECKING

import pytest

import agent_saga.adapters
import agent_saga.connectors

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import ModuleType

DOORS = [
    *(f"agent_saga.adapters.{m.name}" for m in pkgutil.iter_modules(agent_saga.adapters.__path__)),
    *(
        f"agent_saga.connectors.{m.name}"
        for m in pkgutil.iter_modules(agent_saga.connectors.__path__)
    ),
]


@pytest.fixture(autouse=True)
def _closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        sys,
        "modules",
        {name: m for name, m in sys.modules.items() if name not in DOORS},
    )


def package_of(door: str) -> str:
    return "agent_saga_" + door.rpartition(".")[2]


def test_the_doors_are_those_of_the_surface() -> None:
    assert sorted(DOORS) == [
        "agent_saga.adapters.autogen",
        "agent_saga.adapters.crewai",
        "agent_saga.adapters.langgraph",
        "agent_saga.adapters.llamaindex",
        "agent_saga.adapters.openai_agents",
        "agent_saga.connectors.postgres",
        "agent_saga.connectors.salesforce",
        "agent_saga.connectors.stripe",
    ]


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """What imports, while no package behind a door can be found."""

    def find(name: str, *rest: object) -> ModuleType:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    real = importlib.import_module
    monkeypatch.setattr(real("agent_saga.plugins.door").importlib, "import_module", find)
    return real


@pytest.mark.parametrize("door", [door for door in DOORS if ".adapters." in door])
def test_a_missing_package_names_the_line_that_installs_it(
    door: str, nothing_installed: Callable[[str], ModuleType]
) -> None:
    with pytest.raises(ImportError) as caught:
        nothing_installed(door)
    distribution = package_of(door).replace("_", "-")
    assert str(caught.value).endswith(f"\n  pip install {distribution}")
    assert caught.value.name == package_of(door)


@pytest.mark.parametrize("door", [door for door in DOORS if ".connectors." in door])
def test_a_package_that_is_not_released_is_named_by_no_line_that_installs(
    door: str, nothing_installed: Callable[[str], ModuleType]
) -> None:
    with pytest.raises(ImportError, match=r"is not released yet.*nothing to install") as caught:
        nothing_installed(door)
    told = str(caught.value)
    assert "pip" not in told
    assert package_of(door).replace("_", "-") not in told
    assert "kit.tool" in told
    assert caught.value.name == package_of(door)


@pytest.mark.parametrize("door", DOORS)
def test_an_installed_package_shows_its_own_names(
    door: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "__all__ = ['shown']\ndef shown(): ...\nhidden = 1\n"
    (tmp_path / f"{package_of(door)}.py").write_text(source)
    sys.modules.pop(package_of(door), None)
    monkeypatch.syspath_prepend(str(tmp_path))
    opened = importlib.import_module(door)
    package = importlib.import_module(package_of(door))
    assert opened.shown is package.shown
    assert opened.__all__ == ["shown"]
    assert dir(opened) == ["shown"]
    package.shown = "replaced"  # type: ignore[attr-defined]
    assert opened.shown == "replaced"
    with pytest.raises(AttributeError):
        opened.missing  # noqa: B018
    with pytest.raises(AttributeError):
        opened.__wrapped__  # noqa: B018


def test_a_package_without_all_shows_its_public_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "agent_saga_stripe.py").write_text("charge = 1\n_own = 2\n")
    sys.modules.pop("agent_saga_stripe", None)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert dir(importlib.import_module("agent_saga.connectors.stripe")) == ["charge"]


def test_a_broken_package_raises_its_own_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "agent_saga_stripe.py").write_text("import no_such_module_anywhere\n")
    sys.modules.pop("agent_saga_stripe", None)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModuleNotFoundError, match="no_such_module_anywhere"):
        importlib.import_module("agent_saga.connectors.stripe")
