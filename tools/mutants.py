"""Seeds one mistake after the other into the code and expects the model to find each.

Rules of this part:

- First the properties hold without a mistake; else nothing is learnt from red.
- Then, for each entry of `agent-saga-core/tests/model/mutants.py`, the model runs in the scene that
  the entry names, in a process of its own. It must be red, and the property that the failure names
  must be one of those that the entry expects.
- What the model cannot tell from the truth, it does not prove: a mistake that is not found, or that
  something else finds, makes the session red.

Called as `python -m tools.mutants [NAME …]` in an environment that has the packages and pytest.
"""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "agent-saga-core" / "tests"
_FOUND = re.compile(r"^E +AssertionError: (P\d+): (.*)$", re.MULTILINE)
_STATES = 2000
"""How many states of a scene are visited without a mistake; with one, the entry says how many."""


def main(wanted: list[str]) -> int:
    """Seed some mistakes, or all; return the exit code."""
    sys.path.insert(0, str(TESTS))
    known = importlib.import_module("model.mutants").MUTANTS
    scenes = len(importlib.import_module("model.test_model").SCENES)
    unknown = [name for name in wanted if name not in known]
    if unknown:
        print(f"mutants.py has no {', '.join(unknown)}")
        return 2
    code, said = _model("", "", _STATES)
    if code:
        print(f"the properties do not hold without a mistake\n{said}")
        return 1
    chosen = wanted or list(known)
    wrong = [name for name in chosen if not _found(name, known[name], scenes)]
    print(f"{len(chosen) - len(wrong)} mistakes found, {len(wrong)} not: {', '.join(wrong) or '-'}")
    return 1 if wrong else 0


def _found(name: str, mutant: Any, scenes: int) -> bool:
    _, said = _model(name, mutant.scene, mutant.states * scenes)
    found = _FOUND.search(said)
    if found is None:
        print(f"{name}: no property found it\n{said[-2000:]}")
        return False
    property_, how = found.groups()
    well = property_ in mutant.found_by
    verdict = "" if well else f", and {' or '.join(mutant.found_by)} should have"
    print(f"{name}: found by {property_}{verdict}: {how[:100]}", flush=True)
    return well


def _model(mistake: str, scene: str, states: int) -> tuple[int, str]:
    cache = Path(os.environ.get("AGENT_SAGA_CACHE", ".pytest_cache")).resolve()
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-o", f"cache_dir={cache}"]
    chosen = f"test_the_properties_hold[{scene}]" if scene else "test_the_properties_hold"
    command += [f"{TESTS / 'model' / 'test_model.py'}::{chosen}"]
    environ = {
        **os.environ,
        "AGENT_SAGA_MUTANT": mistake,
        "AGENT_SAGA_MODEL_STATES": str(states),
        "HYPOTHESIS_STORAGE_DIRECTORY": str(cache / "hypothesis"),
    }
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
