"""What the package is from outside: what importing it loads, its versions, its registration."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import agent_saga_langgraph
from agent_saga.kit.frameworks.versions import text
from agent_saga.plugins.integrations import IntegrationRegistry
from agent_saga_langgraph import plugin, versions

NAMES = {
    *("saga_agent", "saga_run", "saga_run_sync", "saga_stream", "saga_stream_sync"),
    *("safe_tool", "wrap_tool", "wrap_tools", "last_report", "SagaMiddleware", "SagaToolNode"),
    *("tool_node_kwargs", "compensable", "read_only", "irreversible"),
    *("GraphApprovals", "approve", "deny", "rollback_to", "rollback_to_sync"),
    *("saga_node", "saga_boundary", "SagaCallbackHandler"),
}


def test_the_promised_names_are_there():
    assert set(agent_saga_langgraph.__all__) >= NAMES
    for name in agent_saga_langgraph.__all__:
        assert getattr(agent_saga_langgraph, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'saga_rum'"):
        agent_saga_langgraph.saga_rum  # noqa: B018 - reading it is the test
    assert set(dir(agent_saga_langgraph)) >= NAMES


@pytest.mark.parametrize("name", ["agent_saga_langgraph", "agent_saga_langgraph.plugin"])
def test_importing_it_loads_no_framework(name):
    program = (
        f"import sys, {name}; "
        "print([m for m in sys.modules if m.partition('.')[0] in ('langgraph', 'langchain_core')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.strip() == b"[]"


def test_tools_need_no_langchain():
    program = (
        "import sys; sys.modules['langchain'] = None; "
        "from agent_saga_langgraph import saga_agent, saga_run, SagaToolNode, wrap_tool"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_version_outside_the_range_is_refused_when_a_name_is_used():
    program = (
        "from importlib import metadata; metadata.version = lambda name: '1.1.9'\n"
        "import agent_saga_langgraph\n"
        "try:\n"
        "    agent_saga_langgraph.saga_run\n"
        "except Exception as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    said = b"agent-saga-langgraph needs langgraph>=1.2,<2, and langgraph 1.1.9 is installed."
    assert said in done.stdout


def test_the_ranges_are_those_of_the_package():
    required = metadata.requires("agent-saga-langgraph")
    for name, bounds in {**versions.RANGES, **versions.LANGCHAIN}.items():
        [line] = [r for r in required if r.partition(";")[0].strip().startswith(f"{name}<")]
        given = line.partition(";")[0].strip()[len(name) :]
        assert set(given.split(",")) == set(text(bounds).split(","))


def test_it_registers_itself():
    registry = IntegrationRegistry()
    plugin.saga_register_integrations(registry)
    found = registry.find("langgraph")
    assert (found.package, found.supports) == ("agent_saga_langgraph", "langgraph>=1.2,<2")
    entries = metadata.entry_points(group="agent_saga", name="langgraph")
    assert [entry.load() for entry in entries] == [plugin]


def test_no_private_name_of_the_frameworks_is_imported():
    source = Path(plugin.__file__).parent
    private = []
    for path in source.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lang"):
                names = [*node.module.split("."), *[alias.name for alias in node.names]]
                private += [f"{path.name}: {name}" for name in names if name.startswith("_")]
    assert private == []
