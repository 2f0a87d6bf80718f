"""What was made ready before a call stays as it is while the call's outcome is unknown."""

from __future__ import annotations

import contextlib

import pytest

from agent_saga import AgentKit, Applied, CannotTell, Observation, Settings

FAST = Settings(settle=0.5, settle_after=0.2, inverse_delay=0.0)


class Boom(Exception):
    pass


class ReadTimeout(Exception):
    """Of an HTTP library: no `TimeoutError`, and no answer either."""


class Shelf:
    """One value that a tool writes over; what it held before is read by `prepare`."""

    def __init__(self):
        self.value = "old"
        self.away = False

    def read(self, text):
        if self.away:
            raise OSError("the share is away")
        return self.value

    def write(self, text):
        self.value = text
        raise ConnectionError("the answer was lost")

    def restore(self, prepared):
        self.value = prepared


def undone(kit, write, shelf, *, meanwhile=lambda: None):
    with pytest.raises(Exception) as ended, kit.transaction():
        for _ in range(2):
            with contextlib.suppress(OSError):
                write("new")
            meanwhile()
        shelf.away = False
        raise Boom
    return ended.value.report


@pytest.mark.guarantee("READY-1")
@pytest.mark.parametrize("probed", [False, True])
@pytest.mark.parametrize("away", [False, True])
def test_a_repeated_call_is_undone_to_what_was_there_before_the_first(tmp_path, probed, away):
    shelf = Shelf()
    kit = AgentKit("files", wal=str(tmp_path / "log"), settings=FAST)
    write = kit.safe_tool(shelf.write, "COMPENSABLE", prepare=shelf.read, idempotent=True)
    write.undo(idempotent=True, null_safe=True)(shelf.restore)
    if probed:
        write.probe(lambda text: CannotTell("away") if shelf.away else Applied(None))

    def leave():
        shelf.away = away

    report = undone(kit, write, shelf, meanwhile=leave)
    assert shelf.value == "old" or not report.clean


@pytest.mark.guarantee("READY-1")
def test_what_was_read_before_the_first_attempt_is_not_read_again(tmp_path):
    shelf, told = Shelf(), []
    kit = AgentKit("files", wal=str(tmp_path / "log"), settings=FAST)
    write = kit.safe_tool(shelf.write, "COMPENSABLE", prepare=shelf.read, idempotent=True)
    write.undo(idempotent=True)(shelf.restore)
    write.probe(lambda text: Applied(None) if told else CannotTell("busy"))
    with pytest.raises(Exception) as ended, kit.transaction():
        for _ in range(2):
            with contextlib.suppress(ConnectionError):
                write("new")
        told.append(True)
        raise Boom
    assert shelf.value == "old"
    assert ended.value.report.clean


def test_a_resumed_call_is_undone_to_what_was_there_before_the_process_died(tmp_path):
    shelf = Shelf()
    for turn in range(2):
        kit = AgentKit("files", wal=str(tmp_path / "log"), settings=FAST)
        write = kit.safe_tool(shelf.write, "COMPENSABLE", prepare=shelf.read, idempotent=True)
        write.undo(idempotent=True, null_safe=True)(shelf.restore)
        try:
            with kit.transaction(saga_id="w", resume=True) as saga:
                with pytest.raises(ConnectionError):
                    write("new")
                if turn == 0:
                    saga.suspend("a human")
                raise Boom
        except Exception as ended:
            report = getattr(ended, "report", None)
    assert shelf.value == "old" or not report.clean


@pytest.mark.guarantee("ANSWER-1")
def test_what_is_no_answer_to_a_call_is_none_to_its_inverse(tmp_path):
    asked = []
    kit = AgentKit("pay", wal=str(tmp_path / "log"), settings=FAST)

    def refund(result):
        asked.append("refund")
        raise ReadTimeout

    charge = kit.safe_tool(
        lambda n: n, "COMPENSABLE", name="charge", no_answer_on=(ReadTimeout,), settle_after=0.2
    )
    charge.undo(refund)
    charge.observe(lambda result: Observation(reversed_=False))
    with pytest.raises(Exception) as ended, kit.transaction():
        charge(1)
        raise Boom
    assert asked == ["refund"]
    assert not ended.value.report.clean
