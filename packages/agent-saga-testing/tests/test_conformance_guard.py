"""The guard over the kits: no standard case is lost without a reason."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from agent_saga.state.base import Capabilities
from agent_saga_testing.integration.conformance import IntegrationConformance
from agent_saga_testing.kits.conformance import Conformance, lost_cases, standard_cases
from agent_saga_testing.kits.state import StateConformance
from agent_saga_testing.kits.wal import WALConformance

MEMORY = Capabilities("memory", False, False, False)
DISK = Capabilities("disk", True, True, False)


def kit(**body):
    return type("Kit", (StateConformance,), {"capabilities": DISK, **body})


def test_a_class_that_only_adds_is_whole():
    cls = kit(test_more=lambda self: None)
    assert lost_cases(cls) == []
    cls().test_every_standard_case_stands()
    cls().test_every_deviation_is_one()


@pytest.mark.parametrize("change", [None, lambda self: None])
def test_a_case_that_is_removed_or_replaced_is_found(change):
    cls = kit(test_none_removes=change)
    assert lost_cases(cls) == ["test_none_removes"]
    with pytest.raises(AssertionError, match="test_none_removes"):
        cls().test_every_standard_case_stands()


def test_a_case_that_a_class_in_between_removes_is_found():
    between = kit(test_none_removes=None)
    assert lost_cases(type("Last", (between,), {})) == ["test_none_removes"]


def test_a_reason_excuses_exactly_its_case():
    reasons = {"test_none_removes": "this store cannot remove; see its manual"}
    cls = kit(test_none_removes=None, test_documents_are_copies=None, deviations=reasons)
    assert lost_cases(cls) == ["test_documents_are_copies"]


@pytest.mark.parametrize(
    ("body", "reasons"),
    [
        ({}, {"test_none_removes": "it stands"}),
        ({}, {"test_no_such_case": "it does not exist"}),
        ({"test_none_removes": None}, {"test_none_removes": "  "}),
    ],
)
def test_a_deviation_that_is_none_is_found(body, reasons):
    with pytest.raises(AssertionError, match="that are none"):
        kit(**body, deviations=reasons)().test_every_deviation_is_one()


def test_cases_that_do_not_apply_are_not_collected():
    cls = kit(capabilities=MEMORY)
    assert cls.test_no_update_is_lost_among_processes is None
    assert cls.test_documents_outlive_the_store is None
    assert cls.test_none_removes is not None
    assert lost_cases(cls) == []
    assert StateConformance.test_no_update_is_lost_among_processes is not None


def test_the_guard_itself_cannot_be_taken_out():
    with pytest.raises(TypeError, match="guard"):
        kit(test_every_standard_case_stands=None)


@pytest.mark.parametrize("base", [StateConformance, WALConformance, IntegrationConformance])
def test_every_case_of_a_kit_is_a_standard_one(base):
    names = {name for name in dir(base) if name.startswith("test_")}
    assert set(standard_cases(base)) == names
    assert len(names) > 30


def test_other_kits_can_be_built_on_the_base():
    class Mine(NamedTuple):
        fast: bool

    class MyKit(Conformance):
        capabilities = Mine(fast=True)

        def test_mine(self):
            pass

    assert lost_cases(MyKit) == []
    MyKit().test_every_standard_case_stands()
