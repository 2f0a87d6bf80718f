"""What belongs to the framework that is installed here: pages, examples, the public door.

Without a framework nothing can be collected, and that is an error: see `empty_parameter_set_mark`.
"""

from __future__ import annotations

import importlib
import json
from importlib import metadata
from pathlib import Path

import pytest

from tools import pages, places, public_door, tree
from tools.starting import page, program

HERE = places.installed()
PAGES = [path for place in HERE for path in pages.running(place)]
EXAMPLES = [
    path
    for place in HERE
    for path in places.programs(place)
    if path.parent == tree.ROOT / "examples"
]


def name(path):
    return str(path.relative_to(tree.ROOT))


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_the_blocks_of_a_page_run(path, tmp_path):
    done = page(path, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", EXAMPLES, ids=name)
def test_an_example_runs_and_leaves_nothing_behind(path, tmp_path):
    done = program(path, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout.strip()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("package", HERE)
def test_it_has_a_page_and_an_example(package):
    assert tree.ROOT / package / "README.md" in PAGES
    assert [path for path in EXAMPLES if places.home_of(path) == package]


@pytest.mark.parametrize("package", HERE)
def test_its_door_is_what_was_promised(package):
    door = importlib.import_module(places.import_name(package))
    contract = json.loads(public_door.file_of(package).read_text("utf-8"))
    assert public_door.describe(door) == contract, "Intended? Then: python -m tools.public_door"
    assert len(door.__all__) == len(set(door.__all__))
    assert set(door.__all__) <= set(dir(door))


@pytest.mark.parametrize("package", HERE)
def test_its_entry_points_lead_somewhere(package):
    for entry in metadata.distribution(Path(package).name).entry_points:
        assert entry.load() is not None
