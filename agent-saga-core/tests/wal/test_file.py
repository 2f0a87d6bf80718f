"""The file log: its place, its writers, its fence."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from agent_saga.errors import (
    SagaFenced,
    SagaForked,
    WALFormatError,
    WALPathError,
    WALPoisoned,
)
from agent_saga.wal import base
from agent_saga.wal.file import AsyncWAL, FileWAL
from agent_saga.wal.lock import add_fence
from agent_saga.wal.os_port import OsPort, fork_generation
from agent_saga.wal.reader import scan_log, writers_of
from agent_saga.wal.writer import is_writer_id
from agent_saga_testing.faults import FaultyPort

EVENTS = ["WRITER_OPEN", "STEP_INTENT", "STEP_COMMITTED"]


def write_two(log: FileWAL) -> int:
    log.append("STEP_INTENT", saga="saga", epoch=1, step="step", payload={"n": 1})
    return log.append("STEP_COMMITTED", saga="saga", epoch=1, step="step", payload={"n": 2})


def folder_of(log: FileWAL) -> Path:
    return Path(log.path) / "writers" / log.writer


# --- the place


def test_nothing_is_made_before_the_first_record(tmp_path, open_log):
    log = open_log()
    log.barrier_sync()
    log.drain()
    assert list(log.read_all()) == []
    log.close()
    assert list(tmp_path.iterdir()) == []


def test_reading_makes_nothing(tmp_path, open_log):
    assert list(scan_log(tmp_path / "absent")) == []
    assert writers_of(str(tmp_path / "absent")) == []
    log = open_log()
    write_two(log)
    log.close()
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    assert len(list(scan_log(tmp_path / "log"))) == 4
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before


def test_the_directory_is_private_and_ignored_by_version_control(tmp_path, open_log):
    log = open_log(tmp_path / "deep" / "er" / "log")
    write_two(log)
    log.barrier_sync()
    path = tmp_path / "deep" / "er" / "log"
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert (path / ".gitignore").read_text() == "*\n"
    assert sorted(entry.name for entry in path.iterdir()) == [".gitignore", "format", "writers"]
    assert is_writer_id(log.writer)
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in path.rglob("*.jsonl"))


def test_a_relative_path_is_taken_when_the_log_is_made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    log = FileWAL("here.wal")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    write_two(log)
    log.close()
    assert (tmp_path / "here.wal").is_dir()
    assert log.address == f"file:{tmp_path}/here.wal"


def test_a_plain_file_in_its_place_is_refused_with_the_rename_to_do(tmp_path, open_log):
    (tmp_path / "log").write_text("an old log")
    with pytest.raises(WALPathError, match=f"mv {tmp_path}/log {tmp_path}/log.old"):
        open_log().append("STEP_INTENT")
    with pytest.raises(WALPathError, match="plain file"):
        list(scan_log(tmp_path / "log"))
    assert (tmp_path / "log").read_text() == "an old log"


def test_a_directory_of_somebody_else_is_left_alone(tmp_path, open_log):
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "main.py").write_text("print()")
    with pytest.raises(WALPathError, match=r"main\.py"):
        open_log().append("STEP_INTENT")
    assert [entry.name for entry in (tmp_path / "log").iterdir()] == ["main.py"]


def test_a_directory_that_holds_only_the_state_store_is_taken(tmp_path, open_log):
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "state.sqlite").touch()
    write_two(open_log())


def test_a_directory_of_a_newer_version_is_refused(tmp_path, open_log):
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "format").write_text("agent-saga log, layout 2\n")
    with pytest.raises(WALFormatError, match="layout 1"):
        open_log().append("STEP_INTENT")
    with pytest.raises(WALFormatError):
        list(scan_log(tmp_path / "log"))


def test_a_directory_that_cannot_be_made_says_so(tmp_path, open_log):
    port = FaultyPort()
    port.fail("mkdir", error=13)
    with pytest.raises(WALPathError, match="AGENT_SAGA_WAL"):
        open_log(port=port).append("STEP_INTENT")


class NetworkPort(OsPort):
    def file_system(self, path: str) -> str:
        return "nfs4"


def test_a_network_file_system_is_refused_unless_forced(tmp_path, open_log):
    with pytest.raises(WALPathError, match="nfs4"):
        open_log(port=NetworkPort()).append("STEP_INTENT")
    assert list(tmp_path.iterdir()) == []
    write_two(open_log(port=NetworkPort(), force=True))


def test_the_file_system_of_a_path_is_that_of_its_longest_mount():
    port = OsPort()
    assert port.file_system("/proc/self/status") == "proc"
    assert port.file_system("/") not in ("", "proc")


def test_every_directory_of_the_log_is_made_durable(tmp_path, open_log):
    synced: list[str] = []

    class Recording(OsPort):
        def sync_directory(self, path: str) -> None:
            synced.append(path)
            super().sync_directory(path)

    log = open_log(tmp_path / "a" / "log", port=Recording())
    log.append("STEP_INTENT")
    wanted = [tmp_path, tmp_path / "a", tmp_path / "a" / "log", tmp_path / "a" / "log" / "writers"]
    assert {str(path) for path in wanted} | {str(folder_of(log))} <= set(synced)


# --- records


def test_records_come_back_in_order(open_log, look):
    log = open_log()
    seq = write_two(log)
    log.barrier_sync()
    assert log.synced >= seq == 3
    records, damages = look()
    assert damages == []
    assert [record.event for record in records][:3] == EVENTS
    assert [record.data for record in records[1:3]] == [{"n": 1}, {"n": 2}]
    assert records[1].saga == "saga"
    assert records[1].step == "step"
    assert (records[1].epoch, records[1].generation) == (1, 0)
    assert records[1].writer == log.writer
    facts = records[0].data
    assert facts["pid"] == os.getpid()
    assert facts["lock"] == (folder_of(log) / "lock").stat().st_ino


def test_every_line_is_json_that_other_tools_can_read(open_log):
    log = open_log()
    log.append("STEP_INTENT", saga='\ud800 \x00 \n " \\ 日本', payload={"text": "\x00\n\u2028"})
    log.close()
    lines = next(folder_of(log).glob("seg-*")).read_bytes().splitlines()
    read = [json.loads(line) for line in lines]
    assert read[1]["s"] == '\ud800 \x00 \n " \\ 日本'
    assert [line["q"] for line in read] == [1, 2, 3]


@pytest.mark.parametrize(
    "odd",
    ["x" * 300, "../../etc/passwd", "/abs", "a\nb", "nul\x00", "\ud800", "", '"', "\\", '","d":{}'],
    ids=ascii,
)
def test_odd_ids_come_back_and_never_become_paths(tmp_path, open_log, look, odd):
    log = open_log()
    log.append("STEP_INTENT", saga=odd, step=odd, payload={"odd": odd})
    log.close()
    records, damages = look()
    assert damages == []
    assert (records[1].saga, records[1].step, records[1].data) == (odd, odd, {"odd": odd})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log"]
    assert [path.name for path in folder_of(log).iterdir() if path.name != "lock"] == [
        "seg-00000001.jsonl"
    ]


def test_a_large_record_is_kept_whole(open_log, look):
    log = open_log()
    text = "x" * 200_000
    for _ in range(5):
        log.append("STEP_COMMITTED", payload={"a": text, "b": [text]})
        log.append("STEP_COMMITTED", payload={"small": 1})
    log.close()
    records, damages = look()
    assert damages == []
    assert [r.data for r in records if r.event == "STEP_COMMITTED"] == [
        {"a": text, "b": [text]},
        {"small": 1},
    ] * 5


def test_ten_megabytes_are_cut_and_the_log_goes_on(open_log, look):
    log = open_log()
    log.append("STEP_COMMITTED", payload={"text": "x" * 10_000_000})
    log.append("STEP_COMMITTED", payload={"small": 1})
    log.close()
    records, damages = look()
    assert damages == []
    large, small = (record for record in records if record.event == "STEP_COMMITTED")
    assert small.data == {"small": 1}
    assert len(large.payload) < 2_000_000


def test_plain_bytes_are_no_payload(open_log):
    with pytest.raises(TypeError, match="Fragment"):
        open_log().append("STEP_INTENT", payload=b'{"password":"hunter2"}')


def test_closing_ends_the_chain_gives_space_back_and_is_final(open_log, look):
    log = open_log()
    write_two(log)
    log.close()
    log.close()
    assert [path.name for path in sorted(folder_of(log).iterdir())] == [
        "lock",
        "seg-00000001.jsonl",
    ]
    assert (folder_of(log) / "seg-00000001.jsonl").stat().st_size < 4096
    records, _ = look()
    assert records[-1].event == "WRITER_CLOSE"
    with pytest.raises(WALPoisoned, match="closed"):
        log.append("STEP_COMMITTED")
    assert len(list(log.read_all())) == 4


def test_closing_an_unused_log_makes_nothing_and_is_final(tmp_path, open_log):
    log = open_log()
    log.close()
    with pytest.raises(WALPoisoned, match="closed"):
        log.append("STEP_INTENT")
    assert list(tmp_path.iterdir()) == []


async def close_on_loop(log: FileWAL) -> None:
    write_two(log)
    await log.barrier()
    await log.aclose()


def test_closing_on_a_loop(open_log, look):
    asyncio.run(close_on_loop(open_log()))
    assert look()[0][-1].event == "WRITER_CLOSE"


def test_a_mark_follows_a_sync_that_no_later_record_tells_of(open_log, look):
    log = open_log(mark_after=0.01)
    told = threading.Event()
    log.on_durable(lambda _: told.set())
    seq = write_two(log)
    log.barrier_sync()
    told.wait(60)
    while log.seq == seq:
        threading.Event().wait(0.01)
    log.drain()
    records, _ = look()
    assert (records[-1].event, records[-1].mark) == ("MARK", seq)


def test_the_old_name_still_opens_a_log():
    assert AsyncWAL is FileWAL


# --- many writers


def test_two_logs_on_one_path_are_two_writers(open_log, look):
    logs = [open_log(), open_log()]
    for log in logs:
        write_two(log)
        log.barrier_sync()
    assert logs[0].writer != logs[1].writer
    records, damages = look()
    assert damages == []
    assert len({record.writer for record in records}) == 2
    assert len([r for r in records if r.event == "STEP_INTENT"]) == 2
    assert [r.writer for r in records] == sorted(r.writer for r in records)


def test_writers_may_begin_at_the_same_moment(open_log, look):
    logs = [open_log() for _ in range(8)]
    gate = threading.Barrier(len(logs))

    def begin(log: FileWAL) -> None:
        gate.wait()
        write_two(log)
        log.barrier_sync()

    threads = [threading.Thread(target=begin, args=(log,)) for log in logs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    records, damages = look()
    assert damages == []
    assert len([r for r in records if r.event == "STEP_COMMITTED"]) == 8


WRITER = """
import sys
from agent_saga.wal.file import FileWAL
log = FileWAL(sys.argv[1])
for n in range(int(sys.argv[2])):
    log.append("STEP_INTENT", saga=sys.argv[3], payload={"n": n})
    log.append_out("STEP_COMMITTED", saga=sys.argv[3], payload={"n": n}, sync=n % 7 == 0)
log.drain()
print("ready", flush=True)
sys.stdin.readline()
"""


def start_writer(path: Path, count: int, name: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), str(count), name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def end(process: subprocess.Popen[str]) -> None:
    process.communicate("end\n")


@pytest.mark.crash
def test_four_processes_share_one_path(tmp_path, look):
    processes = [start_writer(tmp_path / "log", 300, f"saga {n}") for n in range(4)]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        end(process)
        assert process.returncode == 0
    records, damages = look()
    assert damages == []
    for n in range(4):
        mine = [r for r in records if r.saga == f"saga {n}" and r.event == "STEP_COMMITTED"]
        assert [r.data["n"] for r in mine] == list(range(300))
    assert len([r for r in records if r.event == "WRITER_CLOSE"]) == 4


@pytest.mark.crash
def test_what_was_handed_over_survives_a_kill(tmp_path, look):
    process = start_writer(tmp_path / "log", 500, "saga")
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdin.close()
    process.stdout.close()
    records, damages = look()
    assert [damage for damage in damages if damage.kind != "torn-tail"] == []
    handed = [r.data["n"] for r in records if r.event == "STEP_COMMITTED"]
    assert handed == list(range(500))
    lock = OsPort().open(str(next((tmp_path / "log" / "writers").glob("*/lock"))), os.O_RDWR)
    assert OsPort().flock(lock)
    os.close(lock)


def test_a_living_writer_holds_its_lock(open_log):
    log = open_log()
    write_two(log)
    port = OsPort()
    fd = port.open(str(folder_of(log) / "lock"), os.O_RDWR)
    assert not port.flock(fd)
    log.close()
    assert port.flock(fd)
    port.close(fd)


# --- fence


def test_a_fence_stops_lower_epochs_of_that_saga_only(open_log):
    log, claimer = open_log(), open_log()
    write_two(log)
    log.check_fence("saga", 1)
    claimer.fence("saga", 2)
    with pytest.raises(SagaFenced):
        log.check_fence("saga", 1)
    log.check_fence("saga", 2)
    log.check_fence("other", 1)
    claimer.fence("saga", 1)
    with pytest.raises(SagaFenced):
        log.check_fence("saga", 1)


def test_a_whole_writer_can_be_fenced(open_log):
    log, other = open_log(), open_log()
    write_two(log)
    write_two(other)
    add_fence(OsPort(), str(folder_of(log)), "*", 2**62)
    with pytest.raises(SagaFenced):
        log.check_fence("any", 10**9)
    other.check_fence("any", 1)


def test_one_writer_can_be_fenced_by_its_id(open_log):
    log, other = open_log(), open_log()
    write_two(log)
    write_two(other)
    other.fence("saga", 2, writer=log.writer)
    other.check_fence("saga", 1)
    with pytest.raises(SagaFenced):
        log.check_fence("saga", 1)


@pytest.mark.parametrize("saga", ["\ud800", 'quote " and \n', "日本"], ids=ascii)
def test_odd_names_are_fenced_too(open_log, saga):
    log = open_log()
    write_two(log)
    log.fence(saga, 2)
    with pytest.raises(SagaFenced):
        log.check_fence(saga, 1)
    log.check_fence("saga", 1)


def test_a_removed_lock_file_fences_everything(open_log):
    log = open_log()
    write_two(log)
    (folder_of(log) / "lock").unlink()
    with pytest.raises(SagaFenced):
        log.check_fence("saga", 1)


def test_a_replaced_lock_file_fences_everything(open_log):
    log = open_log()
    write_two(log)
    lock = folder_of(log) / "lock"
    lock.rename(lock.with_name("old"))
    lock.touch()
    with pytest.raises(SagaFenced):
        log.check_fence("saga", 1)


@pytest.mark.parametrize("line", [b"{", b"\xff\n", b"[]\n", b'{"saga":1,"epoch":2}\n', b'{"saga":'])
def test_a_fence_that_cannot_be_read_fences_everything(open_log, line):
    log = open_log()
    write_two(log)
    with (folder_of(log) / "lock").open("ab") as lock:
        lock.write(line)
    with pytest.raises(SagaFenced):
        log.check_fence("saga", 1)


def test_a_fence_costs_one_look_while_nothing_changes(open_log):
    port = FaultyPort()
    log = open_log(port=port)
    write_two(log)
    log.check_fence("saga", 1)
    before = looks(port)
    log.check_fence("saga", 1)
    assert looks(port) == before + 1  # beside it the next segment may be made ready


def looks(port: FaultyPort) -> int:
    return [call.name for call in port.calls].count("stat")


def test_one_look_serves_every_announcement_that_was_durable_before_it(open_log, monkeypatch):
    monkeypatch.setattr(base, "_now", lambda: 0.0)
    port = FaultyPort()
    log, claimer = open_log(port=port), open_log()
    write_two(log)
    first = log.append("STEP_INTENT", saga="a")
    second = log.append("STEP_INTENT", saga="b")
    log.barrier_sync(second)
    before = looks(port)
    log.check_fence("a", 1, first)
    log.check_fence("b", 1, second)
    assert looks(port) == before + 1
    claimer.fence("a", 2)
    third = log.append("STEP_INTENT", saga="a")
    log.barrier_sync(third)
    with pytest.raises(SagaFenced):
        log.check_fence("a", 1, third)
    assert looks(port) == before + 2


def test_an_announcement_that_is_not_durable_is_served_by_no_look(open_log, monkeypatch):
    monkeypatch.setattr(base, "_now", lambda: 0.0)
    port = FaultyPort()
    log = open_log(port=port)
    write_two(log)
    seq = log.append("STEP_COMPENSATING", saga="a")
    before = looks(port)
    for _ in range(2):
        log.check_fence("a", 1, seq)
    assert looks(port) == before + 2


def test_a_look_serves_for_a_moment_only(open_log, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(base, "_now", lambda: now[0])
    log, claimer = open_log(), open_log()
    write_two(log)
    seq = log.append("STEP_INTENT", saga="a")
    log.barrier_sync(seq)
    log.check_fence("a", 1, seq)
    claimer.fence("a", 2)
    now[0] = 0.011
    with pytest.raises(SagaFenced):
        log.check_fence("a", 1, seq)


def test_fencing_a_log_that_is_not_there_is_refused(open_log):
    with pytest.raises(WALPathError, match="no log"):
        open_log().fence("saga", 2)


# --- fork


@pytest.mark.crash
def test_a_forked_child_begins_a_writer_of_its_own(open_log, look):
    log = open_log()
    write_two(log)
    log.append("STEP_COMMITTED", payload={"who": "buffered by the parent"})
    child = os.fork()
    if child == 0:
        status = 1
        try:
            assert fork_generation() == 1
            with pytest.raises(SagaForked):
                log.check_fence("saga", 1)
            log.append("STEP_INTENT", saga="child", payload={"who": "child"})
            log.barrier_sync()
            log.check_fence("child", 1)
            log.close()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    log.append("STEP_COMMITTED", payload={"who": "parent"})
    log.barrier_sync()
    records, damages = look()
    assert damages == []
    whos = [(r.writer, r.data["who"]) for r in records if "who" in r.data]
    assert [who for _, who in whos] == ["buffered by the parent", "parent", "child"]
    assert len({writer for writer, _ in whos}) == 2
    assert fork_generation() == 0


@pytest.mark.crash
def test_a_child_does_not_keep_its_parents_lock(tmp_path):
    script = """
import os, sys, time
from agent_saga.wal.file import FileWAL
log = FileWAL(sys.argv[1])
log.append("STEP_INTENT"); log.barrier_sync()
if os.fork() == 0:
    print(log.path, flush=True)
    time.sleep(60)
else:
    print("parent", flush=True)
    time.sleep(60)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "log")],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert len([process.stdout.readline(), process.stdout.readline()]) == 2
        process.kill()
        process.wait()
        lock = next((tmp_path / "log" / "writers").glob("*/lock"))
        fd = os.open(lock, os.O_RDWR)
        assert OsPort().flock(fd)
        os.close(fd)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.stdout.close()
