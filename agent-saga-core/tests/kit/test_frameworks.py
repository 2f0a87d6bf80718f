"""What every framework package uses: versions, the door, declarations."""

from __future__ import annotations

import sys
import types
from importlib import metadata

import pytest

from agent_saga import ConfigurationError
from agent_saga.kit.frameworks import declarations, versions
from agent_saga.kit.frameworks.door import found

RANGE = {"some-framework": ((1, 2), (2,))}


@pytest.mark.parametrize(
    ("installed", "fits"),
    [("1.1.9", False), ("1.2.0", True), ("1.2.0rc1", True), ("1.99", True), ("2.0.0", False)],
)
def test_a_version_outside_the_range_is_refused(installed, fits, monkeypatch):
    monkeypatch.setattr(metadata, "version", lambda name: installed)
    if fits:
        versions.check("agent-saga-some", RANGE)
        return
    said = rf"agent-saga-some needs some-framework>=1.2,<2, and some-framework {installed}"
    with pytest.raises(ConfigurationError, match=said):
        versions.check("agent-saga-some", RANGE)


def test_a_framework_that_is_missing_is_named():
    with pytest.raises(ConfigurationError, match="no-such-framework is not installed") as missing:
        versions.check("agent-saga-some", {"no-such-framework": ((1,), (2,))})
    assert missing.value.fix == 'pip install "no-such-framework>=1,<2"'


@pytest.fixture
def package(monkeypatch):
    """A package with one module, and a door that leads to it."""
    door, home = types.ModuleType("agent_saga_some"), types.ModuleType("agent_saga_some.home")
    door.__path__ = []
    home.thing = object()
    monkeypatch.setitem(sys.modules, door.__name__, door)
    monkeypatch.setitem(sys.modules, home.__name__, home)
    return door


def test_a_door_finds_a_name_once_and_keeps_it(package):
    homes = {"thing": ".home", "read_only": "agent_saga.kit.frameworks.declarations"}
    thing = found("agent_saga_some", homes, {}, "thing")
    assert thing is sys.modules["agent_saga_some.home"].thing
    assert package.thing is thing
    assert found("agent_saga_some", homes, {}, "read_only") is declarations.read_only


def test_a_door_without_the_name_says_so_and_loads_nothing(package):
    with pytest.raises(AttributeError, match="'agent_saga_some' has no attribute 'think'"):
        found("agent_saga_some", {"thing": ".home"}, RANGE, "think")


def test_a_door_to_an_unfit_framework_stays_shut(package):
    with pytest.raises(ConfigurationError, match="agent-saga-some needs some-framework"):
        found("agent_saga_some", {"thing": ".home"}, RANGE, "thing")
    assert not hasattr(package, "thing")


def test_what_is_no_declaration_is_refused():
    with pytest.raises(ConfigurationError, match="'charge' is declared by 'COMPENSABLE'"):
        declarations.checked({"charge": "COMPENSABLE"})


def test_undeclared_tools_are_all_named_with_a_block_to_paste():
    error = declarations.undeclared(["charge", "ship"])
    assert "charge, ship do to the world" in str(error)
    assert '    "ship": compensable(…),' in error.fix
