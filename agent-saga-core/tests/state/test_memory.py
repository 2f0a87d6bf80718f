"""What only the store in memory has: forks."""

from __future__ import annotations

import os
import threading

import pytest

from agent_saga.state.base import Change
from agent_saga.state.memory import MemoryStateStore


@pytest.mark.crash
def test_a_fork_while_a_rule_holds_the_store_leaves_the_child_free():
    def put(docs):
        return Change(docs["k"], {"k": {"pid": os.getpid()}})

    def held(docs):
        inside.set()
        go_on.wait(30)
        return put(docs)

    inside, go_on = threading.Event(), threading.Event()
    with MemoryStateStore() as store:
        holder = threading.Thread(target=store.transact, args=(["k"], held))
        holder.start()
        assert inside.wait(30)
        child = os.fork()
        if child == 0:
            os._exit(0 if store.transact(["k"], put) is None else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        go_on.set()
        holder.join()
        assert store.transact(["k"], put) == {"pid": os.getpid()}
