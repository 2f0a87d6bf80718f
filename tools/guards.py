"""Takes out each guarantee's guard in turn and expects its tests to fail.

Rules of this part:

- First everything is green with all guards in place; else nothing is learnt from red.
- Then, for each id, the guard goes and its tests run until the first failure. All green means that
  nobody would notice the guard's loss: the id is named, and the session is red.
- Tests that cannot even be collected without the guard prove nothing: red as well.
- What a framework's package guarantees is proven where that framework is installed; elsewhere it is
  left out, and refused if it was asked for.

Called as `python -m tools.guards [ID …]` in an environment that has the packages and pytest.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tools import forks, guarantees, places

_FAILED, _GREEN = 1, 0
_PER_TEST_SECONDS = 30
_FULL = "AGENT_SAGA_FULL" in os.environ


def main(wanted: list[str]) -> int:
    """Prove the guards of some guarantees, or of all; return the exit code."""
    known = guarantees.load()
    unknown = [name for name in wanted if name not in known]
    if unknown:
        print(f"guarantees.toml has no {', '.join(unknown)}")
        return 2
    chosen = [name for name in wanted or known if known[name].is_here]
    elsewhere = [name for name in wanted if name not in chosen]
    if elsewhere:
        print(
            f"{', '.join(elsewhere)}: not here, but where {known[elsewhere[0]].place} is installed"
        )
        return 2
    if not chosen:
        print("guarantees.toml names no guarantee")
        return 1
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(_cache() / "hypothesis")
    os.chdir(guarantees.ROOT)
    forks.load(sorted({file for name in chosen for file in _files(name)}))
    wrong = [name for name in chosen if not _proven(known[name])]
    print(f"{len(chosen) - len(wrong)} guards proven, {len(wrong)} not: {', '.join(wrong) or '-'}")
    return 1 if wrong else 0


def _proven(entry: guarantees.Guarantee) -> bool:
    files = _files(entry.id)
    if not files:
        print(f"{entry.id}: no test is bound to it")
        return False
    # Outside the full matrix the same tests have just run, guards in place, in `tests`.
    with_guard, said = _pytest(entry.id, files, []) if _FULL else (_GREEN, "")
    if with_guard != _GREEN:
        print(f"{entry.id}: its tests fail with the guard in place\n{said}")
        return False
    without, said = _pytest(entry.id, files, ["--without-guard", entry.id, "--exitfirst"])
    if without == _GREEN:
        print(f"{entry.id}: its tests pass without {entry.guard}; they do not prove it")
    elif without != _FAILED:
        print(f"{entry.id}: its tests could not run without {entry.guard}\n{said}")
    else:
        print(f"{entry.id}: proven", flush=True)
    return without == _FAILED


def _files(name: str) -> list[str]:
    """Return the test files bound to an id; a marked kit stands for all that may use it."""
    files = guarantees.bound().get(name, set())
    if any("src" in path.relative_to(guarantees.ROOT).parts for path in files):
        return [f"{package}/tests" for package in places.shared()]
    return sorted(map(str, files))


def _pytest(name: str, files: list[str], options: list[str]) -> tuple[int, str]:
    chosen = ["-q", "-o", f"cache_dir={_cache()}", "-p", "tools.without_guard"]
    # By a thread: without its guard the code under test may keep what a signal's handler raises.
    bound = [f"--timeout={_PER_TEST_SECONDS}", "--timeout-method=thread"]
    return forks.run([*chosen, "--guarantee", name, *options, *bound, *files])


def _cache() -> Path:
    return Path(os.environ.get("AGENT_SAGA_CACHE", ".pytest_cache")).resolve()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
