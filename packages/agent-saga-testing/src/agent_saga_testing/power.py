"""A disk that loses power: what was not synced may be there or not, page by page.

    disk = PowerLossPort(root)
    ... use it as the port of a log below `root` ...
    disk.materialise(elsewhere, choose=random.Random(7).randrange)

Rules of this part:

- The real files below the root always show the present, as the page cache does. Beside them the
  model keeps what is durable, and every page and size that was written since.
- A sync of a file makes its data and size durable; its name is durable only once its directory was
  synced. Of the changes to one directory a prefix survives, in order, as in a journal; a rename
  is one change.
- Of each page any version since the last sync may survive, independently of every other page, and
  so may any size. Whatever lies beyond what was ever written reads as zeros.
- A model is used by one process. It is made before the root has content, or takes what is there for
  durable.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from agent_saga.wal.os_port import OsPort

__all__ = ["PAGE", "PowerLossPort", "keep_everything", "lose_everything"]

PAGE: Final = 4096
"""Bytes that reach the disk together."""

Choose = Callable[[int], int]
"""Given n, chooses from 0 to n - 1; 0 is what was durable, the highest what was written last."""


def lose_everything(_count: int) -> int:
    """Choose what was durable: nothing that was not synced survives."""
    return 0


def keep_everything(count: int) -> int:
    """Choose what was written last: everything survives, as after a kill."""
    return count - 1


class _File:
    """What is durable of one file, and what may be."""

    def __init__(self, content: bytes) -> None:
        self.durable = content
        self.current = bytearray(content)
        self.pages: dict[int, list[bytes]] = {}
        self.sizes: list[int] = []

    def write(self, data: bytes, offset: int, page: int) -> None:
        self._grow(offset + len(data))
        self.current[offset : offset + len(data)] = data
        for number in range(offset // page, (offset + len(data) - 1) // page + 1):
            start = number * page
            self.pages.setdefault(number, []).append(bytes(self.current[start : start + page]))

    def resize(self, size: int) -> None:
        del self.current[size:]
        self._grow(size)
        self.sizes.append(size)

    def _grow(self, size: int) -> None:
        if size > len(self.current):
            self.current.extend(bytes(size - len(self.current)))
            self.sizes.append(size)

    def sync(self) -> None:
        self.durable = bytes(self.current)
        self.pages, self.sizes = {}, []

    def survivor(self, choose: Choose, page: int) -> bytes:
        sizes = [len(self.durable), *self.sizes]
        size = sizes[choose(len(sizes))]
        content = bytearray(self.durable[:size])
        content.extend(bytes(size - len(content)))
        for number, versions in sorted(self.pages.items()):
            start = number * page
            choice = choose(len(versions) + 1)
            if choice and start < size:
                version = versions[choice - 1][: size - start]
                content[start : start + len(version)] = version
        return bytes(content)


class _Folder:
    """What is durable of one directory's names, and the changes since."""

    def __init__(self) -> None:
        self.durable: dict[str, _File | _Folder] = {}
        self.changes: list[dict[str, _File | _Folder]] = []

    @property
    def current(self) -> dict[str, _File | _Folder]:
        return self.changes[-1] if self.changes else self.durable

    def change(self, **names: _File | _Folder | None) -> None:
        after = {**self.current, **{n: node for n, node in names.items() if node is not None}}
        for name in [name for name, node in names.items() if node is None]:
            after.pop(name, None)
        self.changes.append(after)

    def sync(self) -> None:
        self.durable, self.changes = self.current, []

    def survivor(self, choose: Choose) -> dict[str, _File | _Folder]:
        versions = [self.durable, *self.changes]
        return versions[choose(len(versions))]


class PowerLossPort(OsPort):
    """A port over real files below a root that also models what a power loss leaves.

    Args:
        root: the directory that the model covers; it exists.
        page: bytes that reach the disk together; 512 models sectors.
    """

    def __init__(self, root: str | os.PathLike[str], *, page: int = PAGE) -> None:
        self.root = Path(root).absolute()
        self._page = page
        self._top = _load(self.root)
        self._nodes: dict[int, _File | _Folder] = {}
        self._lock = threading.Lock()

    def materialise(self, target: str | os.PathLike[str], choose: Choose) -> None:
        """Write what the disk may hold after a power loss now.

        Args:
            target: a directory to fill; it is made, and must not lie below the root.
            choose: decides every open question; `random.Random(seed).randrange`, a draw of a
                property test, `lose_everything` or `keep_everything`.
        """
        with self._lock:
            _write_out(self._top, Path(target), choose, self._page)

    def open(self, path: str, flags: int, mode: int = 0o600) -> int:
        """Open a file; a new name is durable once its directory was synced."""
        with self._lock:
            made = not os.path.lexists(path)
            fd = super().open(path, flags, mode)
            node = self._node_of(path, made=made)
            if node is not None:
                self._nodes[fd] = node
            if flags & os.O_TRUNC and isinstance(node, _File):
                node.resize(0)
            return fd

    def close(self, fd: int) -> None:
        """Close a descriptor; nothing becomes durable by that."""
        with self._lock:
            super().close(fd)
            self._nodes.pop(fd, None)

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        """Write at an offset; the pages may survive."""
        with self._lock:
            count = super().pwrite(fd, data, offset)
            self._wrote(fd, data[:count], offset)
            return count

    def append(self, fd: int, data: bytes) -> int:
        """Write at the end; the pages may survive."""
        with self._lock:
            node = self._nodes.get(fd)
            offset = os.fstat(fd).st_size
            count = super().append(fd, data)
            if isinstance(node, _File):
                self._wrote(fd, data[:count], offset)
            return count

    def fdatasync(self, fd: int) -> None:
        """Make a file's data and size durable."""
        self.fsync(fd)

    def fsync(self, fd: int) -> None:
        """Make a file's data, or a directory's names, durable."""
        with self._lock:
            node = self._nodes.get(fd)
            if node is not None:
                node.sync()

    def fallocate(self, fd: int, size: int) -> None:
        """Give a file zeros up to a size; the size may survive."""
        with self._lock:
            node = self._nodes.get(fd)
            if os.fstat(fd).st_size < size:
                os.ftruncate(fd, size)
                if isinstance(node, _File):
                    node.resize(size)

    def ftruncate(self, fd: int, size: int) -> None:
        """Cut a file; the old size may survive."""
        with self._lock:
            super().ftruncate(fd, size)
            node = self._nodes.get(fd)
            if isinstance(node, _File):
                node.resize(size)

    def replace(self, source: str, target: str) -> None:
        """Rename within one directory; it survives as a whole or not at all."""
        with self._lock:
            super().replace(source, target)
            node = self._find(source)
            if node is not None:
                names: dict[str, _File | _Folder | None] = {Path(source).name: None}
                self._parent(target).change(**names, **{Path(target).name: node})

    def unlink(self, path: str) -> None:
        """Remove a name; it may survive until its directory was synced."""
        with self._lock:
            super().unlink(path)
            if self._covers(path):
                self._parent(path).change(**{Path(path).name: None})

    def mkdir(self, path: str, mode: int = 0o700) -> None:
        """Make a directory; its name is durable once its parent was synced."""
        with self._lock:
            super().mkdir(path, mode)
            if self._covers(path):
                self._parent(path).change(**{Path(path).name: _Folder()})

    def rmdir(self, path: str) -> None:
        """Remove a directory; its name may survive until its parent was synced."""
        with self._lock:
            super().rmdir(path)
            if self._covers(path):
                self._parent(path).change(**{Path(path).name: None})

    def _node_of(self, path: str, *, made: bool) -> _File | _Folder | None:
        """Find the model of what was opened; a file that is new to the model gets one."""
        node = self._find(path)
        if node is None and self._covers(path):
            node = _File(b"" if made else Path(path).read_bytes())
            self._parent(path).change(**{Path(path).name: node})
        return node

    def _wrote(self, fd: int, data: bytes, offset: int) -> None:
        node = self._nodes.get(fd)
        if isinstance(node, _File) and data:
            node.write(data, offset, self._page)

    def _covers(self, path: str) -> bool:
        return self.root in Path(path).absolute().parents

    def _parent(self, path: str) -> _Folder:
        folder = self._find(str(Path(path).absolute().parent))
        if not isinstance(folder, _Folder):
            raise FileNotFoundError(path)
        return folder

    def _find(self, path: str) -> _File | _Folder | None:
        place = Path(path).absolute()
        if place != self.root and self.root not in place.parents:
            return None
        node: _File | _Folder | None = self._top
        for name in place.relative_to(self.root).parts:
            node = node.current.get(name) if isinstance(node, _Folder) else None
        return node


def _load(path: Path) -> _Folder:
    """Take what lies in a directory for durable."""
    folder = _Folder()
    for entry in path.iterdir():
        folder.durable[entry.name] = _load(entry) if entry.is_dir() else _File(entry.read_bytes())
    return folder


def _write_out(folder: _Folder, target: Path, choose: Choose, page: int) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for name, node in sorted(folder.survivor(choose).items()):
        if isinstance(node, _Folder):
            _write_out(node, target / name, choose, page)
        else:
            (target / name).write_bytes(node.survivor(choose, page))
