"""What the package is from outside: what importing it loads, its versions, its registration."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import agent_saga_llamaindex
from agent_saga.kit.frameworks.versions import text
from agent_saga.plugins.integrations import IntegrationRegistry
from agent_saga_llamaindex import plugin, versions

NAMES = {
    *("saga_agent", "saga_run", "saga_run_sync", "saga_stream", "saga_stream_sync", "SagaStream"),
    *("saga_tool", "safe_tool", "wrap_tool", "wrap_tools", "last_report"),
    *("compensable", "read_only", "irreversible"),
}


def test_the_promised_names_are_there():
    assert set(agent_saga_llamaindex.__all__) == NAMES
    for name in agent_saga_llamaindex.__all__:
        assert getattr(agent_saga_llamaindex, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'saga_rum'"):
        agent_saga_llamaindex.saga_rum  # noqa: B018 - reading it is the test
    assert set(dir(agent_saga_llamaindex)) >= NAMES


def test_type_checkers_are_told_of_all_names():
    tree = ast.parse(Path(agent_saga_llamaindex.__file__).read_text("utf-8"))
    late = next(node for node in tree.body if isinstance(node, ast.If))
    told = [alias.asname for node in late.body for alias in node.names]
    assert sorted(told) == agent_saga_llamaindex.__all__


@pytest.mark.parametrize("name", ["agent_saga_llamaindex", "agent_saga_llamaindex.plugin"])
def test_importing_it_loads_no_framework(name):
    program = (
        f"import sys, {name}; print([m for m in sys.modules if m.partition('.')[0] in "
        "('llama_index', 'workflows', 'llama_index_instrumentation')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.strip() == b"[]"


@pytest.mark.parametrize("installed", ["0.14.21", "0.15.0"])
def test_a_version_outside_the_range_is_refused_when_a_name_is_used(installed):
    program = (
        f"from importlib import metadata; metadata.version = lambda name: '{installed}'\n"
        "import agent_saga_llamaindex\n"
        "try:\n"
        "    agent_saga_llamaindex.saga_run\n"
        "except Exception as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    said = "agent-saga-llamaindex needs llama-index-core>=0.14.22,<0.15, and llama-index-core "
    assert f"{said}{installed} is installed." in done.stdout


def test_the_range_is_that_of_the_package():
    required = metadata.requires("agent-saga-llamaindex")
    [line] = [one for one in required if one.startswith("llama-index-core")]
    wanted = text(versions.RANGES["llama-index-core"])
    assert set(line.removeprefix("llama-index-core").split(",")) == set(wanted.split(","))


def test_it_registers_itself():
    registry = IntegrationRegistry()
    plugin.saga_register_integrations(registry)
    found = registry.find("llamaindex")
    assert (found.package, found.supports) == (
        "agent_saga_llamaindex",
        "llama-index-core>=0.14.22,<0.15",
    )
    entries = metadata.entry_points(group="agent_saga", name="llamaindex")
    assert [entry.load() for entry in entries] == [plugin]


def test_the_door_in_the_core_leads_here():
    from agent_saga.adapters import llamaindex

    assert llamaindex.saga_run is agent_saga_llamaindex.saga_run


def test_no_private_name_of_the_framework_is_imported():
    source = Path(plugin.__file__).parent
    private = []
    for path in source.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            root = (getattr(node, "module", None) or "").partition(".")[0]
            if isinstance(node, ast.ImportFrom) and root in ("llama_index", "workflows"):
                names = [*node.module.split("."), *[alias.name for alias in node.names]]
                private += [f"{path.name}: {name}" for name in names if name.startswith("_")]
    assert private == []
