"""A late "it had no effect" speaks of its own attempt, never of one before it."""

from __future__ import annotations

import contextlib
import time

import pytest

from agent_saga import AgentKit, NotApplied, RetryPolicy, SagaAborted, Settings

PATIENT = Settings(settle=5.0, settle_after=0.2, inverse_delay=0.0)


class Boom(Exception):
    pass


@pytest.mark.guarantee("LATE-1")
@pytest.mark.parametrize("retried", [False, True])
@pytest.mark.parametrize("first_took_effect", [False, True])
def test_a_late_refusal_of_the_second_attempt_does_not_settle_the_first(
    tmp_path, retried, first_took_effect
):
    world, calls = [], []
    kit = AgentKit("pay", wal=str(tmp_path / "log"), settings=PATIENT)

    def charge(n):
        calls.append(n)
        if len(calls) == 1:
            world.extend(["charge"] * first_took_effect)
            raise ConnectionError("lost") if first_took_effect else NotApplied("429")
        time.sleep(0.5)
        raise NotApplied("429")

    policy = RetryPolicy(max_retries=1, base_delay=0) if retried else None
    tool = kit.safe_tool(charge, "COMPENSABLE", idempotent=True, timeout=0.2, retry=policy)
    tool.undo(lambda result: world.append("refund"))
    with pytest.raises(SagaAborted) as ended, kit.transaction():
        for _ in range(1 if retried else 2):
            with contextlib.suppress(Exception):
                tool(1)
        raise Boom
    assert len(calls) == 2
    assert ended.value.report.clean is not first_took_effect
