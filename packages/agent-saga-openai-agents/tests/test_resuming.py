"""States that other processes go on with: after the first was killed, and several at once."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agent_saga_testing.waiting import until
from agent_saga_testing.world import World

pytestmark = pytest.mark.crash


class Case:
    """A run that waited in a process that was killed."""

    def __init__(self, folder):
        self.folder = folder
        self.processes = []

    def wait_and_die(self):
        """Let a process wait for an approval, and be killed then."""
        first = self.begun("wait")
        _, said = first.communicate()
        assert first.returncode == -signal.SIGKILL, said
        self.world = World(self.folder / "world.sqlite", honours_keys=False)
        self.world.assert_applied_once("seat")

    def begun(self, *arguments):
        program = str(Path(__file__).with_name("resuming.py"))
        command = [sys.executable, program, str(self.folder), *arguments]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        self.processes.append(subprocess.Popen(command, **pipes))
        return self.processes[-1]

    def end(self):
        """Leave no process behind, also where a test was given up."""
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.communicate()

    def gone_on(self, *arguments, at_once=1):
        """Let processes go on with the state, all at the same moment; return what each printed."""
        (self.folder / "go").unlink(missing_ok=True)
        begun = [self.begun("go", *arguments) for _ in range(at_once)]
        until(lambda: all((self.folder / f"ready {one.pid}").exists() for one in begun))
        (self.folder / "go").touch()
        told = [one.communicate() for one in begun]
        self.codes = [one.returncode for one in begun]
        self.errors = [err for _, err in told]
        return sorted(out.strip() or err for out, err in told)


@pytest.fixture
def case(tmp_path):
    case = Case(tmp_path)
    try:
        case.wait_and_die()
        yield case
    finally:
        case.end()


def test_of_several_at_once_one_goes_on_where_a_killed_one_waited(case):
    told = case.gone_on(at_once=2)
    assert "done clean" in told
    assert set(told) <= {"done clean", "done again", "ClaimRefused", "SagaClosed"}, case.errors
    case.world.assert_applied_once("seat", "room")


def test_one_that_is_killed_behind_the_effect_leaves_it_to_no_other_to_repeat(case):
    case.gone_on("killed")
    assert case.codes == [-signal.SIGKILL]
    case.world.assert_applied_once("seat", "room")
    assert case.gone_on() == ["done not clean"]
    case.world.assert_applied_once("seat", "room")
