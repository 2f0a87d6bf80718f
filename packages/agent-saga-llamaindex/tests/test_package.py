"""What the package is from outside: what importing it loads, its versions, its registration."""

from __future__ import annotations

from agent_saga.kit.guarantees import manifest, stated
from agent_saga_testing.integration.shape import DecoratorShape, PackageShape


class TestShape(PackageShape):
    package = "agent_saga_llamaindex"
    loads = ("llama_index", "workflows", "llama_index_instrumentation")
    refused = ("0.14.21", "0.15.0")
    names = frozenset(
        {
            *("saga_tool", "SagaStream", "EventApprovals", "ApprovalRequired", "ApprovalGiven"),
            *("Waiting", "approve", "deny"),
        }
    )


class TestDecorator(DecoratorShape):
    package = "agent_saga_llamaindex"


def test_its_guarantees_are_told_with_those_of_the_core():
    told = {entry["id"]: entry for entry in manifest()["guarantees"]}
    own = [entry["id"] for entry in stated("agent_saga_llamaindex")]
    assert {"LIFE-1", "LLAMAINDEX-1", *own} <= set(told)
