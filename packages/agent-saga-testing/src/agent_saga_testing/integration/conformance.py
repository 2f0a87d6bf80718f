"""The conformance kit for framework packages.

A package's test is a class of a few lines:

    class TestMyFramework(IntegrationConformance):
        driver = MyDriver

What the framework makes impossible is set to None, with its reason in `deviations`.
"""

from __future__ import annotations

from agent_saga_testing.integration.questions import QuestionCases
from agent_saga_testing.integration.resumes import ResumeCases
from agent_saga_testing.integration.runs import RunCases

__all__ = ["IntegrationConformance"]


class IntegrationConformance(RunCases, ResumeCases, QuestionCases):
    """What every framework package must pass; see the module for what a package gives."""
