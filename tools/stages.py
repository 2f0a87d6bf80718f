"""Runs nox sessions as stages: bounded, some at a time, each with a log, and one sum at the end.

Rules of this part:

- nox says which sessions there are and what they do; here they are only started and counted.
- What carries the tag `long` starts first: a long stage that starts last runs on by itself. Of
  those, the first are on a disk: they wait most.
- What carries the tag `alone` measures, or is a walk of its own: it runs last, with no other stage.
- One stage more than there are processors runs at a time, up to four: a third of what tests take is
  waiting, for a disk, for another process, for something that must not happen.
- The temporary files of a stage are in memory where there is enough of it, but on a disk where the
  stage carries the tag `disk`, or all do; see `tools.memory`.
- A stage that overruns its bound is ended with all its processes and has failed.
- A stage that fails without a failing test counts as one failure: the sum is never better than
  the stages.
- A stage has no standard input. Its log is printed when it fails, and kept in any case.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tools import memory, processes, results

if TYPE_CHECKING:
    from pathlib import Path

JOBS = min(4, (os.cpu_count() or 1) + 1)
"""How many stages run at a time."""

_LOG_LINES = 400
_KINDS = ("alone", "long", "disk")


@dataclass(frozen=True)
class Stage:
    """One nox session.

    Attributes:
        name: as nox lists it.
        python: the version that it needs; None for the one that runs nox.
        alone: it runs while no other stage does.
        long: it takes many minutes.
        disk: its temporary files are on a disk.
    """

    name: str
    python: str | None
    alone: bool = False
    long: bool = False
    disk: bool = False


@dataclass(frozen=True)
class Outcome:
    """How a stage ended."""

    stage: Stage
    code: int
    seconds: float
    counts: results.Counts

    @property
    def failures(self) -> int:
        """The failing tests, and at least one when the stage itself failed."""
        return max(self.counts.failed, 1 if self.code else 0)


class Runner:
    """Starts nox in one environment.

    Args:
        python: the interpreter of an environment that has nox.
        root: the repository.
        folder: where nox keeps its environments and the stages their logs.
        environ: the environment of every stage.
        bound: seconds that one stage may take.
        disk: all have their temporary files on a disk.
    """

    def __init__(
        self,
        python: Path,
        root: Path,
        folder: Path,
        environ: dict[str, str],
        bound: float,
        *,
        disk: bool = False,
    ) -> None:
        self._nox = [str(python), "-m", "nox", "--noxfile", str(root / "noxfile.py")]
        self._root, self._folder, self._environ = root, folder, environ
        self._disk, self._jobs = disk, 1
        self._processes = processes.Group(bound)

    def stages(self, tag: str) -> list[Stage]:
        """Return the sessions that carry a tag: the long ones, the others, those that run alone."""
        listed = subprocess.run(
            [*self._nox, "--list", "--json", "--tags", tag],
            env=self._environ,
            cwd=self._root,
            check=True,
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        found = [
            Stage(item["session"], item["python"], *(kind in item["tags"] for kind in _KINDS))
            for item in json.loads(listed.stdout)
        ]
        return sorted(found, key=lambda stage: (stage.alone, not stage.long, not stage.disk))

    def run(self, stages: list[Stage], jobs: int) -> list[Outcome]:
        """Run the stages and tell about each when it ends.

        Args:
            stages: what to run; started in this order, those that run alone last.
            jobs: how many of the others run at the same time.
        """
        self._jobs = jobs
        try:
            together = self._pool([stage for stage in stages if not stage.alone], jobs)
            return together + self._pool([stage for stage in stages if stage.alone], 1)
        finally:
            # After an interrupt: nothing more starts.
            self._processes.end_all()

    def _pool(self, stages: list[Stage], jobs: int) -> list[Outcome]:
        with ThreadPoolExecutor(jobs) as pool:
            running = [pool.submit(self._stage, stage) for stage in stages]
            try:
                return [self._tell(done.result()) for done in as_completed(running)]
            except BaseException:
                self._processes.end_all()
                raise

    def _stage(self, stage: Stage) -> Outcome:
        began = time.monotonic()
        found = self._folder / "results" / stage.name
        shutil.rmtree(found, ignore_errors=True)
        found.mkdir(parents=True)
        command = [*self._nox, "--envdir", str(self._folder / "nox"), "--session", stage.name]
        with (
            self._log(stage).open("w", encoding="utf-8") as log,
            memory.temporary(on_disk=stage.disk or self._disk, stages=self._jobs) as where,
        ):
            environ = {**self._environ, "AGENT_SAGA_RESULTS": str(found), **where}
            code = self._processes.run(command, self._root, environ, log.fileno())
        return Outcome(stage, code, time.monotonic() - began, results.read(found))

    def _tell(self, outcome: Outcome) -> Outcome:
        stage, state = outcome.stage, "failed" if outcome.failures else "ok"
        counts = f" ({outcome.counts})" if outcome.counts != results.Counts() else ""
        print(f"{state:6} {stage.name:28} {outcome.seconds:5.0f} s{counts}", flush=True)
        if outcome.failures:
            lines = self._log(stage).read_text("utf-8", "replace").splitlines()
            print("\n".join(f"  | {line}" for line in lines[-_LOG_LINES:]), flush=True)
        return outcome

    def _log(self, stage: Stage) -> Path:
        folder = self._folder / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{stage.name}.log"
