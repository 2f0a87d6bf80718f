"""What the package is from outside: what importing it loads, its versions, its registration."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata

from agent_saga.kit.frameworks.versions import text
from agent_saga.kit.guarantees import manifest, stated
from agent_saga_langgraph import versions
from agent_saga_testing.integration.shape import PackageShape


class TestShape(PackageShape):
    package = "agent_saga_langgraph"
    loads = ("langgraph", "langchain_core", "langchain")
    refused = ("1.1.9", "2.0.0")
    names = frozenset(
        {
            *("SagaAgent", "SagaMiddleware", "SagaToolNode", "tool_node_kwargs", "saga_node"),
            *("GraphApprovals", "approve", "deny", "rollback_to", "rollback_to_sync"),
            *("saga_boundary", "SagaCallbackHandler"),
        }
    )


def test_tools_need_no_langchain():
    program = (
        "import sys; sys.modules['langchain'] = None; "
        "from agent_saga_langgraph import saga_agent, saga_run, SagaToolNode, wrap_tool"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_range_of_langchain_is_that_of_the_extra():
    required = metadata.requires("agent-saga-langgraph")
    for name, bounds in versions.LANGCHAIN.items():
        [line] = [r for r in required if r.partition(";")[0].strip().startswith(f"{name}<")]
        given = line.partition(";")[0].strip()[len(name) :]
        assert set(given.split(",")) == set(text(bounds).split(","))


def test_its_guarantees_are_told_with_those_of_the_core():
    told = {entry["id"]: entry for entry in manifest()["guarantees"]}
    assert told["LANGGRAPH-1"]["where"] == "agent_saga_langgraph.attempts"
    assert {"LIFE-1", *(entry["id"] for entry in stated("agent_saga_langgraph"))} <= set(told)
    assert "guard" not in told["LANGGRAPH-1"]
