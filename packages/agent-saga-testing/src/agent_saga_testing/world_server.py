"""A world in a process of its own, so that what counts the effects never dies with what makes them.

    with WorldServer() as server:
        world = ServedWorld(tmp_path / "world.sqlite", server.address)
        world.do("charge", key="k")

Rules of this part:

- Whatever reaches the server is counted there and then, whether or not its caller lives to see the
  answer. Requests are taken one at a time, from all processes.
- A process makes one connection and keeps it; a forked child makes its own.
- Nothing is kept for anybody: the worlds are files, which a test may also read without the server.
- The server ends when the process that started it does.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingMixIn, UnixStreamServer
from typing import TYPE_CHECKING, Any, Final

from agent_saga_testing.world import World
from agent_saga_testing.world_db import forget, keep_open

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

_ASKED: Final = (
    "calls",
    "deliver",
    "do",
    "drop",
    "fail_before",
    "find",
    "hold_back",
    "lose_answers",
    "spend",
    "undo",
    "undo_of_key",
)
_READY: Final = b"ready\n"


class WorldServer:
    """The process that keeps worlds.

    Attributes:
        address: the socket at which it answers.
    """

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="saga-world-")
        self.address = os.path.join(self._folder, "socket")  # noqa: PTH118 - an address
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from agent_saga_testing.world_server import main; main()"],
            env={**os.environ, "PYTHONPATH": search_path()},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        orders, answers = self._process.stdin, self._process.stdout
        if orders is None or answers is None:
            raise RuntimeError("The server has no pipes.")
        orders.write(f"{self.address}\n".encode())
        orders.flush()
        if answers.readline() != _READY:
            raise RuntimeError("The world's server did not start.")

    def close(self) -> None:
        """End the server; the worlds' files stay."""
        line = _lines.pop((os.getpid(), self.address), None)
        if line is not None:
            line.close()
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class ServedWorld(World):
    """A world that a server keeps; it is used like any other.

    Args:
        path: the world's file.
        address: where the server answers.
    """

    def __init__(self, path: str | os.PathLike[str], address: str) -> None:
        self.path = Path(path).absolute()
        self._address = address

    def forget(self) -> None:
        """Let the server close the file, before it is removed."""
        _line(self._address).ask((str(self.path), "forget", (), {}))


def _asking(name: str) -> Callable[..., Any]:
    @functools.wraps(getattr(World, name))
    def asked(self: ServedWorld, *args: object, **kwargs: object) -> Any:
        return _line(self._address).ask((str(self.path), name, args, kwargs))

    return asked


for _name in _ASKED:
    setattr(ServedWorld, _name, _asking(_name))


class _Line:
    """This process's connection to a server; one request at a time."""

    def __init__(self, address: str) -> None:
        self._lock = threading.Lock()
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(address)
        self._answers = self._socket.makefile("rb")

    def ask(self, request: object) -> Any:
        """Send a request and return its answer; raise what it raised."""
        with self._lock:
            self._socket.sendall(pickle.dumps(request))
            ended_well, value = pickle.load(self._answers)  # noqa: S301 - written by our program
        if not ended_well:
            raise value
        return value

    def close(self) -> None:
        """Hang up."""
        self._answers.close()
        self._socket.close()


_lines: dict[tuple[int, str], _Line] = {}


def _line(address: str) -> _Line:
    place = (os.getpid(), address)
    if place not in _lines:
        _lines[place] = _Line(address)
    return _lines[place]


class _Answering(StreamRequestHandler):
    """Answers one process until it ends."""

    def handle(self) -> None:
        """Take requests one by one."""
        with contextlib.suppress(EOFError, OSError, pickle.UnpicklingError):
            while True:
                answer = _answered(*pickle.load(self.rfile))  # noqa: S301 - as above
                self.wfile.write(pickle.dumps(answer))


class _Listening(ThreadingMixIn, UnixStreamServer):
    daemon_threads = True
    request_queue_size = 64


_one_at_a_time = threading.Lock()
_worlds: dict[str, World] = {}


def _answered(path: str, name: str, args: Any, kwargs: Any) -> tuple[bool, object]:
    with _one_at_a_time:
        try:
            if name == "forget":
                _worlds.pop(path, None)
                forget(Path(path))
                return True, None
            if path not in _worlds:
                keep_open(Path(path))
                _worlds[path] = World(path)
            return True, getattr(_worlds[path], name)(*args, **kwargs)
        except Exception as error:
            return False, error


def search_path(first: Sequence[str | os.PathLike[str]] = ()) -> str:
    """Return where a process of ours finds its modules: as this one does, after these folders."""
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    folders = [*(os.fspath(one) for one in first), *inherited, *sys.path]
    return os.pathsep.join(dict.fromkeys(filter(None, folders)))


def main() -> None:
    """Answer at the address that the first line of standard input names, until that is closed."""
    server = _Listening(sys.stdin.readline().rstrip("\n"), _Answering)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.buffer.write(_READY)
    sys.stdout.flush()
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
