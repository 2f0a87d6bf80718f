"""A process that charges against a shared limit; run by `test_shared_limits`."""

from __future__ import annotations

import os
import signal
import sys

from agent_saga import AgentKit, BudgetLimit, LimitExceeded, PreFlightGate, RateLimit
from agent_saga.controls.limits.control import SharedLimits

_ROOM = 10**9


def kit_on(wal, most):
    limits = [
        BudgetLimit("spend", arg="amount", max_total=most, window=86_400),
        RateLimit("calls", max_calls=_ROOM, window=86_400),
    ]
    return AgentKit("worker", wal=wal, gate=PreFlightGate(limits=limits))


def main(wal, world, most, calls, die="never"):
    """Charge `calls` times one; each effect is a byte in the file of the world."""
    kit = kit_on(wal, int(most))
    fd = os.open(world, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def charge(amount):
        os.write(fd, b"x" * amount)
        if die == "in the effect":
            os.kill(os.getpid(), signal.SIGKILL)

    if die == "before the intent":
        rule = SharedLimits._judged

        def judged(self, limits, call):
            wait = rule(self, limits, call)
            then = wait.then

            def last(answer, error):
                then(answer, error)
                os.kill(os.getpid(), signal.SIGKILL)

            wait.then = last
            return wait

        SharedLimits._judged = judged
    tool = kit.safe_tool(charge, "COMPENSABLE", name="charge")
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    refused = 0
    for _ in range(int(calls)):
        with kit.transaction():
            try:
                tool(amount=1)
            except LimitExceeded:
                refused += 1
    sys.stdout.write(str(refused))


if __name__ == "__main__":
    main(*sys.argv[1:])
