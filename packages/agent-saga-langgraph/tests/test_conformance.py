"""Every way to put agent-saga into LangGraph passes the kit."""

from __future__ import annotations

import drivers

from agent_saga_testing.integration.conformance import IntegrationConformance


class TestOneLine(IntegrationConformance):
    driver = drivers.OneLineDriver


class TestMiddleware(IntegrationConformance):
    driver = drivers.MiddlewareDriver


class TestHandMade(IntegrationConformance):
    driver = drivers.HandMadeDriver
