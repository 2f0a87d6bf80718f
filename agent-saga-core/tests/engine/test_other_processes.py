"""Errors of a saga in another process: a pool of workers pickles them, a framework copies them."""

from __future__ import annotations

import copy
import multiprocessing
import pickle

import pytest

from agent_saga import (
    AgentKit,
    AgentSagaError,
    CommittedUnsettled,
    MemoryWAL,
    NotApplied,
    SagaAborted,
    SagaSuspended,
    Settings,
)
from agent_saga.engine.endings import step_of
from agent_saga.errors import ApprovalPending, StepTimeout


class OnlyByName(Exception):
    """Pickle makes such an exception, and cannot read it again."""

    def __init__(self, *, code):
        super().__init__(f"code {code}")


def work(how):
    kit = AgentKit("worker", wal=MemoryWAL(), settings=Settings(settle_after=0, inverse_delay=0))

    @kit.tool("COMPENSABLE")
    def pay():
        if how == "no effect":
            raise NotApplied("no such account")
        raise OnlyByName(code=5) if how == "by name" else ValueError("declined")

    with kit.transaction(reraise=how in ("as it came", "no effect")):
        pay()


@pytest.fixture(scope="module")
def worker(pytestconfig):
    with pytest.MonkeyPatch.context() as patched:
        # A worker finds `work` by this module's name, below the folder the tests were started for.
        patched.syspath_prepend(pytestconfig.rootpath)
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            yield lambda how: pool.apply_async(work, (how,)).get(60)


def test_a_worker_s_aborted_saga_reaches_whoever_waits_with_its_report(worker):
    with pytest.raises(SagaAborted, match="declined") as aborted:
        worker("aborts")
    assert isinstance(aborted.value.cause, ValueError)
    assert aborted.value.report.outcome == "PARTIAL"
    assert not aborted.value.report.clean
    assert aborted.value.fix


def test_a_cause_that_cannot_be_read_again_goes_as_its_text(worker):
    with pytest.raises(SagaAborted) as aborted:
        worker("by name")
    assert isinstance(aborted.value.cause, AgentSagaError)
    assert "OnlyByName: code 5" in str(aborted.value.cause)


def test_what_left_a_worker_s_boundary_as_it_came_can_be_read(worker):
    with pytest.raises(ValueError, match="declined") as caught:
        worker("as it came")
    assert step_of(caught.value) is None


def test_no_effect_in_a_worker_says_nothing_of_the_call_that_waits_for_it(worker, kit, world):
    """The worker's step had none; what the tool did before it asked the worker, it did."""

    def pay_and_ask():
        world.charge(10)
        worker("no effect")

    tool = kit.safe_tool(pay_and_ask, "COMPENSABLE", name="pay_and_ask")
    with pytest.raises(SagaAborted) as aborted, kit.transaction():
        tool()
    assert world.standing == ["ch1"]
    assert not aborted.value.report.clean


def test_a_copied_error_still_speaks_for_its_own_step_only(kit, world):
    def nothing():
        raise NotApplied("nothing")

    inner = kit.safe_tool(nothing, "COMPENSABLE", name="inner")

    def pay_and_ask():
        world.charge(10)
        try:
            inner()
        except NotApplied as error:
            raise copy.deepcopy(error) from None

    tool = kit.safe_tool(pay_and_ask, "COMPENSABLE", name="pay_and_ask")
    with pytest.raises(SagaAborted) as aborted, kit.transaction():
        tool()
    assert world.standing == ["ch1"]
    assert not aborted.value.report.clean


def _report(kit):
    with kit.transaction() as saga:
        pass
    return saga.report


@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e))]
)
def test_every_error_of_a_boundary_is_the_same_again(kit, again):
    report = _report(kit)
    errors = [
        SagaAborted("it failed", cause=ValueError("why"), report=report, fix="look"),
        CommittedUnsettled("unknown", report=report),
        SagaSuspended("it waits", report=report),
        ApprovalPending("a human is asked", question={"id": "q1"}),
        StepTimeout("too slow"),
    ]
    for error in errors:
        error.add_note("a note")
        same = again(error)
        assert type(same) is type(error)
        assert (str(same), same.args, same.fix) == (str(error), error.args, error.fix)
        assert same.__notes__ == ["a note"]
        assert set(vars(same)) == set(vars(error))
