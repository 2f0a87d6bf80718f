"""What the package is from outside: what importing it loads, its versions, its registration."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import agent_saga_openai_agents
from agent_saga.kit.frameworks.versions import text
from agent_saga.plugins.integrations import IntegrationRegistry
from agent_saga_openai_agents import plugin, versions

NAMES = {
    *("saga_agent", "saga_run", "saga_run_sync", "saga_stream", "saga_stream_sync", "SagaStream"),
    *("saga_tool", "safe_tool", "wrap_tool", "wrap_tools", "last_report"),
    *("compensable", "read_only", "irreversible", "RunStateApprovals", "approve", "deny"),
    "ServerToolFailed",
}


def test_the_promised_names_are_there():
    assert set(agent_saga_openai_agents.__all__) == NAMES
    for name in agent_saga_openai_agents.__all__:
        assert getattr(agent_saga_openai_agents, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'saga_rum'"):
        agent_saga_openai_agents.saga_rum  # noqa: B018 - reading it is the test
    assert set(dir(agent_saga_openai_agents)) >= NAMES


@pytest.mark.parametrize("name", ["agent_saga_openai_agents", "agent_saga_openai_agents.plugin"])
def test_importing_it_loads_no_framework(name):
    program = (
        f"import sys, {name}; "
        "print([m for m in sys.modules if m.partition('.')[0] in ('agents', 'openai', 'mcp')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.strip() == b"[]"


@pytest.mark.parametrize("installed", ["0.18.2", "1.0.0"])
def test_a_version_outside_the_range_is_refused_when_a_name_is_used(installed):
    program = (
        f"from importlib import metadata; metadata.version = lambda name: '{installed}'\n"
        "import agent_saga_openai_agents\n"
        "try:\n"
        "    agent_saga_openai_agents.saga_run\n"
        "except Exception as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    said = "agent-saga-openai-agents needs openai-agents>=0.18.3,<1, and openai-agents "
    assert f"{said}{installed} is installed." in done.stdout


def test_the_range_is_that_of_the_package():
    required = metadata.requires("agent-saga-openai-agents")
    [line] = [one for one in required if one.startswith("openai-agents")]
    wanted = text(versions.RANGES["openai-agents"])
    assert set(line.removeprefix("openai-agents").split(",")) == set(wanted.split(","))


def test_it_registers_itself():
    registry = IntegrationRegistry()
    plugin.saga_register_integrations(registry)
    found = registry.find("openai-agents")
    assert (found.package, found.supports) == (
        "agent_saga_openai_agents",
        "openai-agents>=0.18.3,<1",
    )
    entries = metadata.entry_points(group="agent_saga", name="openai-agents")
    assert [entry.load() for entry in entries] == [plugin]


def test_the_door_in_the_core_leads_here():
    from agent_saga.adapters import openai_agents

    assert openai_agents.saga_run is agent_saga_openai_agents.saga_run


def test_no_private_name_of_the_framework_is_imported():
    source = Path(plugin.__file__).parent
    private = []
    for path in source.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("agents"):
                names = [*node.module.split("."), *[alias.name for alias in node.names]]
                private += [f"{path.name}: {name}" for name in names if name.startswith("_")]
    assert private == []
