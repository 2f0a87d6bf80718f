"""Every page tells the truth: its blocks run, its links lead somewhere, its programs exist.

The blocks of a framework's pages run where it is installed: `tests/frameworks`.
"""

from __future__ import annotations

import re

import pytest

from tools import pages, places, starting, tree

PAGES = [path for path in tree.files() if path.suffix == ".md"]
LINK = re.compile(r"\[[^\]]*\]\((?!\w+:)([^)#\s]*)(#[^)\s]*)?\)")
PROGRAM = re.compile(r"\bpython3? (?:-m pytest )?((?:examples|bench|tests)/[\w/]+\.py|run\.py)")


def name(path):
    return str(path.relative_to(tree.ROOT))


def languages(path):
    return {block.language for block in pages.blocks(path.read_text("utf-8"))}


def anchors(path):
    prose = re.sub(r"```.*?```", "", path.read_text("utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ +(.*?) *$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.timeout(1200)  # two readings of a page; each has the time of a test
@pytest.mark.parametrize("path", pages.running(places.SHARED), ids=name)
def test_the_blocks_of_a_page_run_and_run_again_in_the_same_folder(path, tmp_path):
    for _ in ("first", "again"):
        done = starting.page(path, tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_a_page_uses_one_framework_at_most(path):
    assert places.home_of(path) in (places.SHARED, *places.frameworks())


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_every_block_names_its_language(path):
    assert "" not in languages(path)


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_links_lead_somewhere(path):
    for target, anchor in LINK.findall(path.read_text("utf-8")):
        aim = (path.parent / target).resolve() if target else path
        assert aim.exists(), f"{target} does not exist"
        if anchor and aim.suffix == ".md":
            assert anchor[1:] in anchors(aim), f"{target}{anchor} does not exist"


INDEX = tree.ROOT / "docs" / "index.md"
LISTED = [
    path
    for path in PAGES
    if path != INDEX and path.is_relative_to(INDEX.parent) and "adr" not in path.parts
]


@pytest.mark.parametrize("path", LISTED, ids=name)
def test_the_index_lists_every_page_under_its_title_with_a_line(path):
    target = re.escape(str(path.relative_to(INDEX.parent)))
    entry = re.search(rf"(?m)^- \[([^\]]*)\]\({target}\)[:,] \S", INDEX.read_text("utf-8"))
    assert entry, "docs/index.md says nothing of it"
    title = re.search(r"(?m)^# (.+)$", path.read_text("utf-8"))
    assert title
    assert entry[1] == title[1]


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_programs_that_a_page_names_exist(path):
    for program in PROGRAM.findall(path.read_text("utf-8")):
        assert (tree.ROOT / program).is_file(), f"{program} does not exist"


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_pages_install_what_is_built_here(path):
    ours = {project.parent.name for project in tree.ROOT.glob("*/pyproject.toml")}
    ours |= {project.parent.name for project in tree.ROOT.glob("packages/*/pyproject.toml")}
    for line in pages.commands(path.read_text("utf-8")):
        if line.startswith(pages.PIP):
            assert set(line.removeprefix(pages.PIP).split()) <= ours
