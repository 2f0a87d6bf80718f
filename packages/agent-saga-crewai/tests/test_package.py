"""What the package is from outside: what importing it loads, its versions, its registration."""

from __future__ import annotations

import quiet  # noqa: F401 - before the framework

from agent_saga.kit.guarantees import manifest, stated
from agent_saga_testing.integration.shape import DecoratorShape, PackageShape


class TestShape(PackageShape):
    package = "agent_saga_crewai"
    loads = ("crewai", "pydantic")
    refused = ("1.15.8", "2.0.0")
    names = frozenset(
        {
            *("saga_tool", "ToolReported", "CrewApprovals", "approve", "deny", "ask_human"),
            *("HumanAsked", "Waiting", "SagaAgent", "SagaEventListener", "SagaStepEvent"),
            *("SagaEndedEvent", "SagaPausedEvent"),
        }
    )


class TestDecorator(DecoratorShape):
    package = "agent_saga_crewai"


def test_its_guarantees_are_told_with_those_of_the_core():
    told = {entry["id"]: entry for entry in manifest()["guarantees"]}
    own = [entry["id"] for entry in stated("agent_saga_crewai")]
    assert {"LIFE-1", "CREWAI-1", *own} <= set(told)
