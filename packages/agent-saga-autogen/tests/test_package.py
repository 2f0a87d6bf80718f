"""What the package is from outside: what importing it loads, its versions, its registration."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import agent_saga_autogen
from agent_saga.kit.frameworks.versions import text
from agent_saga.plugins.integrations import IntegrationRegistry
from agent_saga_autogen import plugin, versions

NAMES = {
    *("saga_agent", "saga_run", "saga_run_sync", "saga_stream", "saga_stream_sync", "SagaStream"),
    *("saga_tool", "safe_tool", "wrap_tool", "wrap_tools", "last_report"),
    *("SagaWorkbench", "WorkbenchToolFailed", "bind"),
    *("compensable", "read_only", "irreversible"),
}


def test_the_promised_names_are_there():
    assert set(agent_saga_autogen.__all__) == NAMES
    for name in agent_saga_autogen.__all__:
        assert getattr(agent_saga_autogen, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'saga_rum'"):
        agent_saga_autogen.saga_rum  # noqa: B018 - reading it is the test
    assert set(dir(agent_saga_autogen)) >= NAMES


def test_type_checkers_are_told_of_all_names():
    tree = ast.parse(Path(agent_saga_autogen.__file__).read_text("utf-8"))
    late = next(node for node in tree.body if isinstance(node, ast.If))
    told = [alias.asname for node in late.body for alias in node.names]
    assert sorted(told) == agent_saga_autogen.__all__


@pytest.mark.parametrize("name", ["agent_saga_autogen", "agent_saga_autogen.plugin"])
def test_importing_it_loads_no_framework(name):
    program = (
        f"import sys, {name}; print([m for m in sys.modules if m.partition('.')[0] in "
        "('autogen_core', 'autogen_agentchat', 'autogen_ext')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.strip() == b"[]"


@pytest.mark.parametrize("installed", ["0.6.1", "0.8.0"])
def test_a_version_outside_the_range_is_refused_when_a_name_is_used(installed):
    program = (
        f"from importlib import metadata; metadata.version = lambda name: '{installed}'\n"
        "import agent_saga_autogen\n"
        "try:\n"
        "    agent_saga_autogen.saga_run\n"
        "except Exception as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    said = "agent-saga-autogen needs autogen-core>=0.6.2,<0.8, and autogen-core "
    assert f"{said}{installed} is installed." in done.stdout


def test_the_range_is_that_of_the_package():
    required = metadata.requires("agent-saga-autogen")
    for name, bounds in versions.RANGES.items():
        [line] = [one for one in required if one.startswith(name)]
        assert set(line.removeprefix(name).split(",")) == set(text(bounds).split(","))


def test_it_registers_itself():
    registry = IntegrationRegistry()
    plugin.saga_register_integrations(registry)
    found = registry.find("autogen")
    assert (found.package, found.supports) == (
        "agent_saga_autogen",
        "autogen-core>=0.6.2,<0.8",
    )
    entries = metadata.entry_points(group="agent_saga", name="autogen")
    assert [entry.load() for entry in entries] == [plugin]


def test_the_door_in_the_core_leads_here():
    from agent_saga.adapters import autogen

    assert autogen.saga_run is agent_saga_autogen.saga_run


def test_no_private_name_of_the_framework_is_imported():
    source = Path(plugin.__file__).parent
    private = []
    for path in source.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            root = (getattr(node, "module", None) or "").partition(".")[0]
            if isinstance(node, ast.ImportFrom) and root in ("autogen_core", "autogen_agentchat"):
                names = [*node.module.split("."), *[alias.name for alias in node.names]]
                private += [f"{path.name}: {name}" for name in names if name.startswith("_")]
    assert private == []
