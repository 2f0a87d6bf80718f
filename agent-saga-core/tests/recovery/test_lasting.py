"""What an inverse does to the process that runs it never reads as success."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PROGRAM = textwrap.dedent(
    """
    import multiprocessing, os, signal, sys
    from pathlib import Path
    from agent_saga import AgentKit, compensator

    kit = AgentKit(wal="log")
    STATE = Path("state")

    def done(word):
        with Path("world").open("a") as world:
            world.write(word + " ")

    def forked():
        process = multiprocessing.get_context("fork").Process(target=os._exit, args=(0,))
        process.start()
        process.join()
        assert process.exitcode == 0
        if os.fork() == 0:
            os.execv("/bin/true", ["true"])
        assert os.wait()[1] == 0

    ENDS = {
        "exits": lambda: os._exit(0),
        "exits with 256": lambda: os._exit(256),
        "exits with 7": lambda: os._exit(7),
        "is replaced": lambda: os.execvp("true", ["true"]),
        "forks": forked,
    }

    @compensator("undo", idempotent=True)
    def undo(n):
        done("tried")
        if Path("how").exists():
            ENDS[Path("how").read_text()]()
        done("undone")

    @kit.tool("COMPENSABLE", compensate=undo.using(n="$"))
    def charge(n: int) -> int:
        return n

    if __name__ == "__main__":
        with kit.transaction():
            charge(1)
            if sys.argv[1:] != ["commit"]:
                os.kill(os.getpid(), signal.SIGKILL)
    """
)


class Shop:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "shop.py").write_text(PROGRAM)

    def python(self, *words: str) -> subprocess.CompletedProcess[str]:
        environ = {**os.environ, "AGENT_SAGA_SETTLE_AFTER": "0", "AGENT_SAGA_INVERSE_ATTEMPTS": "1"}
        command = [sys.executable, "-W", "ignore::DeprecationWarning", *words]
        return subprocess.run(
            command, cwd=self.folder, env=environ, check=False, capture_output=True, text=True
        )

    def run(self, program: str, *words: str) -> subprocess.CompletedProcess[str]:
        return self.python("-m", program, *words, "--wal-path", "log", "--import", "shop")

    def how(self, how: str) -> None:
        (self.folder / "how").write_text(how)

    @property
    def world(self) -> list[str]:
        return (self.folder / "world").read_text().split()


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


COMMANDS = [
    ("agent_saga.cli", "recover"),
    ("agent_saga.cli.recoveryd", "--once"),
    ("agent_saga.cli", "undo", "SAGA", "--by", "ann", "--reason", "no"),
]


@pytest.mark.guarantee("RECOVER-10")
@pytest.mark.parametrize(
    ("how", "code"), [("exits", 1), ("exits with 256", 1), ("exits with 7", 7)]
)
@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[1])
def test_an_inverse_that_exits_never_makes_a_command_succeed(
    shop: Shop, words: tuple[str, ...], how: str, code: int
) -> None:
    begun(shop, words)
    shop.how(how)
    done = shop.run(*named(shop, words))
    assert done.returncode == code, done
    assert "ended this process" in done.stderr
    (shop.folder / "how").unlink()
    assert shop.run("agent_saga.cli", "recover").returncode == 0, "the next pass goes on"
    assert shop.world == ["tried", "tried", "undone"]


def test_an_inverse_does_not_put_another_program_in_the_place_of_recovery(shop: Shop) -> None:
    begun(shop, COMMANDS[0])
    shop.how("is replaced")
    done = shop.run("agent_saga.cli", "recover")
    assert done.returncode == 1
    assert "may not put another program" in done.stdout


def test_what_an_inverse_forks_off_ends_as_it_likes(shop: Shop) -> None:
    begun(shop, COMMANDS[0])
    shop.how("forks")
    done = shop.run("agent_saga.cli", "recover")
    assert done.returncode == 0, done
    assert shop.world == ["tried", "undone"]


def begun(shop: Shop, words: tuple[str, ...]) -> None:
    commits = "undo" in words
    done = shop.python("shop.py", *(["commit"] if commits else []))
    assert done.returncode == (0 if commits else -signal.SIGKILL), done


def named(shop: Shop, words: tuple[str, ...]) -> list[str]:
    from agent_saga.cli.reading import read_log

    [saga] = read_log(shop.folder / "log").sagas
    return [saga if word == "SAGA" else word for word in words]
