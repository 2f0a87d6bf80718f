"""What the package is from outside: what importing it loads, its versions, its registration."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
import quiet  # noqa: F401 - before the framework

import agent_saga_crewai
from agent_saga.kit.frameworks.versions import text
from agent_saga.plugins.integrations import IntegrationRegistry
from agent_saga_crewai import plugin, versions

NAMES = {
    *("saga_agent", "saga_run", "saga_run_sync", "saga_stream", "saga_stream_sync"),
    *("safe_tool", "saga_tool", "wrap_tool", "wrap_tools", "last_report", "ToolReported"),
    *("compensable", "read_only", "irreversible", "CrewApprovals", "approve", "deny"),
    *("ask_human", "HumanAsked", "Waiting", "SagaEventListener", "SagaEndedEvent"),
}


def test_the_promised_names_are_there():
    assert set(agent_saga_crewai.__all__) >= NAMES
    for name in agent_saga_crewai.__all__:
        assert getattr(agent_saga_crewai, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'saga_rum'"):
        agent_saga_crewai.saga_rum  # noqa: B018 - reading it is the test
    assert set(dir(agent_saga_crewai)) >= NAMES


@pytest.mark.parametrize("name", ["agent_saga_crewai", "agent_saga_crewai.plugin"])
def test_importing_it_loads_no_framework(name):
    program = (
        f"import sys, {name}; "
        "print([m for m in sys.modules if m.partition('.')[0] in ('crewai', 'pydantic')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.strip() == b"[]"


def test_a_version_outside_the_range_is_refused_when_a_name_is_used():
    program = (
        "from importlib import metadata; metadata.version = lambda name: '1.15.8'\n"
        "import agent_saga_crewai\n"
        "try:\n"
        "    agent_saga_crewai.saga_run\n"
        "except Exception as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    said = b"agent-saga-crewai needs crewai>=1.15.9,<2, and crewai 1.15.8 is installed."
    assert said in done.stdout


def test_the_ranges_are_those_of_the_package():
    required = metadata.requires("agent-saga-crewai")
    for name, bounds in versions.RANGES.items():
        [line] = [r for r in required if r.partition(";")[0].strip().startswith(f"{name}<")]
        given = line.partition(";")[0].strip()[len(name) :]
        assert set(given.split(",")) == set(text(bounds).split(","))


def test_type_checkers_are_told_of_the_same_names():
    tree = ast.parse(Path(agent_saga_crewai.__file__).read_text("utf-8"))
    told = {
        alias.asname
        for node in tree.body
        if isinstance(node, ast.If)
        for line in node.body
        for alias in line.names
    }
    assert told == set(agent_saga_crewai.__all__)


def test_the_core_has_a_door_to_it():
    from agent_saga.adapters import crewai as door

    assert door.saga_agent is agent_saga_crewai.saga_agent


def test_it_registers_itself():
    registry = IntegrationRegistry()
    plugin.saga_register_integrations(registry)
    found = registry.find("crewai")
    assert (found.package, found.supports) == ("agent_saga_crewai", "crewai>=1.15.9,<2")
    entries = metadata.entry_points(group="agent_saga", name="crewai")
    assert [entry.load() for entry in entries] == [plugin]


def test_no_private_name_of_the_frameworks_is_imported():
    source = Path(plugin.__file__).parent
    private = []
    for path in source.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("crewai"):
                names = [*node.module.split("."), *[alias.name for alias in node.names]]
                private += [f"{path.name}: {name}" for name in names if name.startswith("_")]
    assert private == []
