"""Ids that users gave to their sagas: never used again, whatever left the log."""

from __future__ import annotations

import pytest
from resume.conftest import QUICK, Shop

from agent_saga import RecoveryDaemon
from agent_saga.errors import DuplicateSaga, SagaClosed, UndoRefused


@pytest.fixture
def shop(tmp_path):
    shop = Shop(tmp_path)
    with shop.open(resume=False):
        shop.charge(1)
    shop.kit.runtime.engine().wal.close()
    return shop


def compacted(shop):
    daemon = RecoveryDaemon(str(shop.log), settings=QUICK)
    done = daemon.compact(grace_seconds=0)
    daemon.close()
    assert done.sagas == 1


def lose_the_store(shop):
    shop.kit.runtime.store.close()
    for file in shop.log.glob("state.*"):
        file.unlink()


@pytest.mark.guarantee("COMPACT-4")
@pytest.mark.parametrize("lost", [False, True], ids=["store kept", "store lost"])
def test_an_id_whose_saga_left_is_refused_also_without_the_store(shop, lost, tmp_path):
    compacted(shop)
    if lost:
        lose_the_store(shop)
    again = Shop(tmp_path)
    with pytest.raises(DuplicateSaga, match="left the log"), again.open(resume=False):
        again.charge(2)
    assert again.world == []


@pytest.mark.guarantee("COMPACT-4")
@pytest.mark.parametrize("lost", [False, True], ids=["store kept", "store lost"])
def test_resuming_a_saga_that_left_says_so(shop, lost, tmp_path):
    compacted(shop)
    if lost:
        lose_the_store(shop)
    again = Shop(tmp_path)
    with pytest.raises(SagaClosed, match="left the log") as refusal, again.open():
        again.charge(2)
    assert refusal.value.fix
    assert again.world == []


def test_within_its_window_a_saga_is_resumed_and_undone_as_before(shop, tmp_path):
    daemon = RecoveryDaemon(str(shop.log), settings=QUICK)
    assert daemon.compact().sagas == 0
    again = Shop(tmp_path)
    with again.open():
        assert again.charge(1) == {"n": 1}
    assert again.world == []
    saga = again.view().id
    daemon.undo(saga, by="me", reason="test")
    assert again.world == [("refund", 1)]
    daemon.close()


def test_undoing_a_saga_that_left_says_that_it_is_not_there(shop):
    saga = shop.view().id
    compacted(shop)
    daemon = RecoveryDaemon(str(shop.log), settings=QUICK)
    with pytest.raises(UndoRefused, match="left the log by compaction"):
        daemon.undo(saga, by="me", reason="test")
    daemon.close()
