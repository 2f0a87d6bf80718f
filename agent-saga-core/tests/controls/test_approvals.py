"""Asking a human: an approval counts for exactly what was asked, and anything else is a no."""

from __future__ import annotations

import asyncio
import io
import threading

import pytest

from agent_saga import (
    Approval,
    ApprovalDenied,
    ApprovalRequest,
    ConsoleApprovals,
    RefusedError,
    Rule,
    SagaAborted,
    SagaUnwinding,
    arg_exceeds,
)

SECRET = "sk_live_" + "a1b2c3d4e5f6g7h8"


class Provider:
    """Answers with what it is given, or by calling it."""

    def __init__(self, answer):
        self.answer = answer
        self.asked = []

    def ask(self, request):
        self.asked.append(request)
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer(request) if callable(self.answer) else self.answer


@pytest.mark.guarantee("GATE-1")
def test_an_irreversible_effect_happens_only_with_a_human_s_approval(gated, world, wal):
    provider = Provider(Approval(True, "ann"))
    kit = gated(provider=provider)
    tool = kit.safe_tool(world.wire, "IRREVERSIBLE", name="wire")
    with kit.transaction():
        tool(5)
    assert world.amounts == [5]
    request = provider.asked[0]
    assert (request.tool, request.rule) == ("wire", "irreversible")
    assert request.arguments == {"amount": 5, "to": "acme"}
    intent = next(r.data for r in wal.read_all() if r.event == "STEP_INTENT")
    assert intent["approved_by"] == "ann"


@pytest.mark.guarantee("GATE-1")
@pytest.mark.parametrize(
    "answer",
    [
        Approval(False, "ann", "no"),
        Approval(True, ""),
        Approval(True, "   "),
        Approval(True, "\u200b"),
        Approval(True, "gated"),
        Approval(True, "@Gated "),
        Approval(True, "g\u0430ted"),
        Approval(True, None),
        Approval(True, 5),
        Approval(1, "ann"),
        Approval("yes", "ann"),
        Approval(None, "ann"),
        None,
        True,
        "yes",
        {"approved": True, "by": "ann"},
        RuntimeError("down"),
        TimeoutError("slow"),
        ConnectionError("gone"),
    ],
)
def test_anything_but_a_named_yes_is_a_no(gated, world, answer):
    kit = gated(provider=Provider(answer))
    tool = kit.safe_tool(world.wire, "IRREVERSIBLE")
    with kit.transaction() as saga, pytest.raises(ApprovalDenied):
        tool(5)
    assert world.amounts == []
    assert saga.report.clean


@pytest.mark.guarantee("GATE-1")
@pytest.mark.parametrize("is_async", [False, True])
def test_an_answer_after_the_time_is_a_no(gated, world, is_async):
    go = threading.Event()

    class Slow:
        def ask(self, request):
            go.wait(20)
            return Approval(True, "ann")

    class SlowAsync:
        async def ask(self, request):
            await asyncio.sleep(20)
            return Approval(True, "ann")

    kit = gated(provider=SlowAsync() if is_async else Slow(), approval_timeout=0.05)
    tool = kit.safe_tool(world.wire, "IRREVERSIBLE")
    with kit.transaction(), pytest.raises(ApprovalDenied, match="in time"):
        tool(5)
    go.set()

    async def main():
        async with kit.transaction():
            with pytest.raises(ApprovalDenied):
                await tool(5)

    go.clear()
    asyncio.run(main())
    go.set()
    assert world.amounts == []


@pytest.mark.guarantee("GATE-2")
@pytest.mark.parametrize("driver", ["sync", "async"])
def test_arguments_changed_while_the_human_was_asked_are_refused(gated, world, driver):
    order = {"amount": 5}

    def answer(request):
        order["amount"] = 1_000_000
        return Approval(True, "ann")

    kit = gated(provider=Provider(answer))
    tool = kit.safe_tool(lambda order: world.wire(order["amount"]), "IRREVERSIBLE", name="wire")

    if driver == "sync":
        with kit.transaction(), pytest.raises(ApprovalDenied, match="changed"):
            tool(order)
    else:

        async def main():
            async with kit.transaction():
                with pytest.raises(ApprovalDenied, match="changed"):
                    await tool(order)

        asyncio.run(main())
    assert world.amounts == []


@pytest.mark.guarantee("GATE-2")
def test_arguments_changed_after_the_approval_are_refused(gated, world):
    order = {"amount": 5}

    def swap(args):
        order["amount"] = 1_000_000

    kit = gated(provider=Provider(Approval(True, "ann")))
    tool = kit.safe_tool(
        lambda order: world.wire(order["amount"]), "IRREVERSIBLE", prepare=swap, name="wire"
    )
    with kit.transaction(), pytest.raises(RefusedError, match="changed"):
        tool(order)
    assert world.amounts == []


@pytest.mark.guarantee("GATE-2")
def test_an_approval_counts_for_one_call_only(gated, world):
    provider = Provider(lambda request: Approval(len(provider.asked) == 1, "ann"))
    kit = gated(provider=provider)
    tool = kit.safe_tool(world.wire, "IRREVERSIBLE")
    with kit.transaction():
        tool(5)
        for amount in (5, 1_000_000):
            with pytest.raises(ApprovalDenied):
                tool(amount)
    assert world.amounts == [5]
    assert len({request.id for request in provider.asked}) == 3


@pytest.mark.parametrize("change", range(7))
def test_the_id_of_a_request_is_bound_to_everything(change):
    base = ["saga", "step", 0, "tool", "rule", "reason", {"amount": 5}, b"mac"]
    other = list(base)
    place, value = [
        (0, "x"),
        (1, "x"),
        (2, 1),
        (3, "x"),
        (4, "x"),
        (7, b"other"),
        (5, "the reason is for people"),
    ][change]
    other[place] = value
    same = ApprovalRequest(*base).id == ApprovalRequest(*other).id
    assert same is (place == 5)


def test_an_object_without_a_state_cannot_be_approved(gated, world):
    kit = gated(provider=Provider(Approval(True, "ann")))
    tool = kit.safe_tool(lambda thing: world.wire(1), "IRREVERSIBLE")
    with kit.transaction(), pytest.raises(ApprovalDenied, match="without a state"):
        tool(object())
    assert world.amounts == []


def test_a_call_whose_arguments_nobody_named_cannot_be_approved(gated, world):
    kit = gated(provider=Provider(Approval(True, "ann")))
    with kit.transaction() as saga:
        with pytest.raises(RefusedError, match="arguments"):
            saga.execute(tool="w", forward=lambda: world.wire(1), semantics="IRREVERSIBLE")
        saga.execute(
            tool="w", forward=lambda: world.wire(2), semantics="IRREVERSIBLE", arguments={"n": 2}
        )
    assert world.amounts == [2]


def test_every_rule_that_asks_is_asked_for(gated, world):
    provider = Provider(Approval(True, "ann"))
    kit = gated(
        Rule("big", arg_exceeds("amount", 10), "ask", "it is a lot"),
        Rule("huge", arg_exceeds("amount", 100), "ask"),
        provider=provider,
    )
    tool = kit.safe_tool(world.wire, "IRREVERSIBLE")
    with kit.transaction():
        tool(1000)
    assert [request.rule for request in provider.asked] == ["irreversible", "big", "huge"]
    assert world.amounts == [1000]


def test_the_saga_is_looked_at_again_after_the_answer(gated, world):
    async def main():
        asked = asyncio.Event()

        class Slow:
            async def ask(self, request):
                asked.set()
                await asyncio.sleep(0.05)
                return Approval(True, "ann")

        kit = gated(provider=Slow())
        tool = kit.safe_tool(world.wire, "IRREVERSIBLE")
        with pytest.raises(SagaAborted):
            async with kit.transaction():
                task = asyncio.ensure_future(tool(5))
                await asked.wait()
                raise ValueError
        with pytest.raises(SagaUnwinding):
            await task

    asyncio.run(main())
    assert world.amounts == []


def test_a_human_sees_no_secrets():
    request = ApprovalRequest(
        "s", "t", 0, "wire", "r", "why", {"note": f"key {SECRET}", "password": "hunter22"}, b"m"
    )
    assert SECRET not in str(request.arguments)
    assert "hunter22" not in str(request.arguments)


def test_a_pivot_stands_and_the_rest_is_undone(gated, world):
    from agent_saga import Compensation

    undone = []
    kit = gated(provider=Provider(Approval(True, "ann")))
    wire = kit.safe_tool(world.wire, "IRREVERSIBLE", name="wire")
    hold = kit.safe_tool(
        lambda: "hold", compensate=lambda r: Compensation(fn=lambda: undone.append(r)), name="hold"
    )
    with pytest.raises(SagaAborted) as caught, kit.transaction():
        hold()
        wire(5)
        hold()
        raise ValueError
    report = caught.value.report
    assert undone == ["hold", "hold"]
    assert (report.outcome, report.clean) == ("PARTIAL", False)
    assert [str(line.tool) for line in report.kept] == ["wire"]
    assert "ann" in report.kept[0].detail


def test_an_irreversible_call_with_a_lost_answer_is_no_kept_pivot(gated, world):
    def lost(amount):
        world.wire(amount)
        raise RuntimeError("the answer was lost")

    kit = gated(provider=Provider(Approval(True, "ann")))
    wire = kit.safe_tool(lost, "IRREVERSIBLE", name="wire")
    with pytest.raises(SagaAborted) as caught, kit.transaction():
        wire(5)
    assert [line.tool for line in caught.value.report.orphaned] == ["wire"]


# --- the console ----------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self):
        return True


def ask(answer, **options):
    shown = io.StringIO()
    console = ConsoleApprovals(stdin=Terminal(answer), stdout=shown, **options)
    request = ApprovalRequest("s", "t", 0, "wire", "r", "nothing can undo it", {"amount": 5}, b"m")
    return console.ask(request), shown.getvalue()


@pytest.mark.parametrize("answer", ["y\n", "yes\n", "Y\n", " YES \n"])
def test_only_a_clear_yes_on_the_terminal_approves(answer):
    approval, shown = ask(answer, approver="ann")
    assert (approval.approved, approval.by) == (True, "ann")
    assert "wire" in shown
    assert '"amount": 5' in shown


@pytest.mark.parametrize("answer", ["", "\n", "n\n", "yep\n", "yes please\n", "1\n", "true\n"])
def test_anything_else_on_the_terminal_denies(answer):
    approval, _ = ask(answer, approver="ann")
    assert approval.approved is False


@pytest.mark.guarantee("GATE-1")
@pytest.mark.parametrize("stdin", [io.StringIO("yes\n"), None])
def test_without_a_terminal_the_answer_is_no(gated, world, stdin, monkeypatch):
    monkeypatch.setattr("sys.stdin", None)
    kit = gated(provider=ConsoleApprovals(stdin=stdin))
    tool = kit.safe_tool(world.wire, "IRREVERSIBLE")
    with kit.transaction(), pytest.raises(ApprovalDenied, match="no terminal"):
        tool(5)
    assert world.amounts == []


def test_what_a_model_writes_cannot_draw_on_the_terminal():
    shown = io.StringIO()
    console = ConsoleApprovals(stdin=Terminal("n\n"), stdout=shown, approver="ann")
    drawn = "\x1b[2J\x1b[H fake\u202e"
    console.ask(ApprovalRequest("s", "t", 0, f"w{drawn}", "r", f"why{drawn}", {"to": drawn}, b"m"))
    for character in "\x1b\u202e":
        assert character not in shown.getvalue()


@pytest.mark.guarantee("GATE-1")
def test_whom_the_boundary_names_as_requester_approves_nothing(gated, world):
    kit = gated(provider=Provider(Approval(True, "Ann")))
    tool = kit.safe_tool(world.wire, "IRREVERSIBLE")
    with (
        kit.transaction(labels={"requester": "ann"}),
        pytest.raises(ApprovalDenied, match="own request"),
    ):
        tool(5)
    assert world.amounts == []
