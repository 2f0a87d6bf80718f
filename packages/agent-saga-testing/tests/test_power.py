"""What a power loss may leave."""

from __future__ import annotations

import os
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_saga_testing.faults import FaultyPort, SimulatedCrash
from agent_saga_testing.power import PAGE, PowerLossPort, keep_everything, lose_everything


@pytest.fixture
def root(tmp_path):
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@pytest.fixture
def disk(root):
    return PowerLossPort(root)


def tree(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def after(disk, choose, place):
    target = place / f"after-{len(list(place.iterdir()))}"
    disk.materialise(target, choose)
    return tree(target)


def write(disk, path, data, offset=0, *, sync=False):
    fd = disk.open(str(path), os.O_RDWR | os.O_CREAT)
    disk.pwrite(fd, data, offset)
    if sync:
        disk.fdatasync(fd)
    disk.close(fd)


def test_what_lies_there_at_first_is_durable(root, tmp_path):
    (root / "deep").mkdir()
    (root / "deep" / "file").write_bytes(b"there")
    disk = PowerLossPort(root)
    assert after(disk, lose_everything, tmp_path) == {"deep": None, "deep/file": b"there"}


def test_nothing_unsynced_must_survive_and_everything_may(disk, root, tmp_path):
    write(disk, root / "file", b"data")
    assert after(disk, lose_everything, tmp_path) == {}
    assert after(disk, keep_everything, tmp_path) == {"file": b"data"} == tree(root)


def test_data_and_name_become_durable_apart(disk, root, tmp_path):
    write(disk, root / "file", b"data", sync=True)
    assert after(disk, lose_everything, tmp_path) == {}
    disk.sync_directory(str(root))
    assert after(disk, lose_everything, tmp_path) == {"file": b"data"}
    write(disk, root / "other", b"data")
    disk.sync_directory(str(root))
    assert after(disk, lose_everything, tmp_path) == {"file": b"data", "other": b""}


def test_a_directory_is_durable_once_its_parent_was_synced(disk, root, tmp_path):
    disk.mkdir(str(root / "made"))
    write(disk, root / "made" / "file", b"data", sync=True)
    disk.sync_directory(str(root / "made"))
    assert after(disk, lose_everything, tmp_path) == {}
    disk.sync_directory(str(root))
    assert after(disk, lose_everything, tmp_path) == {"made": None, "made/file": b"data"}


def test_pages_survive_one_by_one_in_any_version(disk, root, tmp_path):
    write(disk, root / "file", bytes(3 * PAGE), sync=True)
    disk.sync_directory(str(root))
    write(disk, root / "file", b"a" * 3 * PAGE)
    write(disk, root / "file", b"b" * PAGE, PAGE)
    seen = set()
    for seed in range(200):
        content = after(disk, random.Random(seed).randrange, tmp_path)["file"]
        pages = [set(content[n * PAGE : (n + 1) * PAGE]) for n in range(3)]
        assert all(len(page) == 1 for page in pages)
        seen.add(tuple(page.pop() for page in pages))
    assert seen == {(x, y, z) for x in b"\0a" for y in b"\0ab" for z in b"\0a"}


def test_a_write_across_pages_may_tear(disk, root, tmp_path):
    write(disk, root / "file", bytes(2 * PAGE), sync=True)
    disk.sync_directory(str(root))
    write(disk, root / "file", b"torn", PAGE - 2)
    contents = {
        after(disk, random.Random(seed).randrange, tmp_path)["file"][PAGE - 2 : PAGE + 2]
        for seed in range(40)
    }
    assert contents == {b"\0\0\0\0", b"to\0\0", b"\0\0rn", b"torn"}


def test_sizes_survive_or_not(disk, root, tmp_path):
    fd = disk.open(str(root / "file"), os.O_RDWR | os.O_CREAT)
    disk.sync_directory(str(root))
    disk.fallocate(fd, 100)
    disk.fsync(fd)
    disk.ftruncate(fd, 7)
    sizes = {
        len(after(disk, random.Random(seed).randrange, tmp_path)["file"]) for seed in range(20)
    }
    assert sizes == {100, 7}
    disk.fallocate(fd, 3)
    assert len((root / "file").read_bytes()) == 7
    disk.close(fd)


def test_what_is_appended_survives_or_not(disk, root, tmp_path):
    fd = disk.open(str(root / "file"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    disk.append(fd, b"one")
    disk.fsync(fd)
    disk.sync_directory(str(root))
    disk.append(fd, b"two")
    disk.close(fd)
    left = [after(disk, choose, tmp_path)["file"] for choose in (lose_everything, keep_everything)]
    assert left == [b"one", b"onetwo"]
    disk.close(disk.open(str(root / "file"), os.O_WRONLY | os.O_TRUNC))
    left = [after(disk, choose, tmp_path)["file"] for choose in (lose_everything, keep_everything)]
    assert left == [b"one", b""]


def test_a_rename_survives_as_a_whole_or_not(disk, root, tmp_path):
    write(disk, root / "old", b"old", sync=True)
    write(disk, root / "new", b"new", sync=True)
    disk.sync_directory(str(root))
    disk.replace(str(root / "new"), str(root / "old"))
    left = [after(disk, choose, tmp_path) for choose in (lose_everything, keep_everything)]
    assert left == [{"new": b"new", "old": b"old"}, {"old": b"new"}]
    disk.unlink(str(root / "old"))
    assert tree(root) == {}
    names = {tuple(after(disk, random.Random(seed).randrange, tmp_path)) for seed in range(40)}
    assert names == {("new", "old"), ("old",), ()}


def test_what_lies_outside_the_root_is_left_alone(disk, tmp_path):
    write(disk, tmp_path / "outside", b"x", sync=True)
    assert (tmp_path / "outside").read_bytes() == b"x"
    assert after(disk, keep_everything, tmp_path) == {}


def test_it_works_below_a_faulty_port(disk, root, tmp_path):
    port = FaultyPort(disk)
    write(port, root / "file", b"synced", sync=True)
    port.sync_directory(str(root))
    port.crash("fdatasync")
    with pytest.raises(SimulatedCrash):
        write(port, root / "file", b"unsure", sync=True)
    left = [after(disk, choose, tmp_path)["file"] for choose in (lose_everything, keep_everything)]
    assert left == [b"synced", b"unsure"]
    port.let_go()


WRITES = st.lists(
    st.tuples(st.integers(0, 300), st.binary(min_size=1, max_size=200), st.booleans()), max_size=12
)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(writes=WRITES, data=st.data())
def test_every_byte_is_one_that_was_durable_or_written_since(tmp_path_factory, writes, data):
    root = tmp_path_factory.mktemp("root")
    disk = PowerLossPort(root, page=64)
    fd = disk.open(str(root / "file"), os.O_RDWR | os.O_CREAT)
    disk.sync_directory(str(root))
    durable, now, possible = b"", bytearray(), {}
    for offset, piece, sync in writes:
        disk.pwrite(fd, piece, offset)
        now.extend(bytes(max(0, offset + len(piece) - len(now))))
        now[offset : offset + len(piece)] = piece
        for place, byte in enumerate(piece, offset):
            possible.setdefault(place, set()).add(byte)
        if sync:
            disk.fdatasync(fd)
            durable, possible = bytes(now), {}
    disk.close(fd)
    assert (root / "file").read_bytes() == now
    target = tmp_path_factory.mktemp("after")
    disk.materialise(target, lambda n: data.draw(st.integers(0, n - 1)))
    left = (target / "file").read_bytes()
    assert len(durable) <= len(left) <= len(now)
    for place, byte in enumerate(left):
        before = durable[place] if place < len(durable) else 0
        assert byte in possible.get(place, set()) | {before}
