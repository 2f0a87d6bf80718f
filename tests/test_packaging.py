"""What each package says about itself, before it is built."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata

import pytest

from tools import interpreters, lock, places, tree

PACKAGES = [tree.ROOT / folder for folder in places.packages()]
OTHERS = PACKAGES[1:]
PLACES = [places.SHARED, *places.frameworks()]
CONSTRAINTS = sorted(places.CONSTRAINTS.glob("*.txt"))


def project(folder):
    return tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))


def name(path):
    return path.name


def pins(path):
    lines = [line for line in path.read_text("utf-8").splitlines() if not line.startswith("#")]
    return {line.partition("==")[0].lower() for line in lines}


def bare(requirement):
    return re.match(r"[A-Za-z0-9._-]+", requirement).group().lower()


def test_the_core_needs_three_leaf_packages():
    assert sorted(map(bare, project(PACKAGES[0])["project"]["dependencies"])) == [
        "click",
        "msgspec",
        "pluggy",
    ]


@pytest.mark.parametrize("folder", PACKAGES, ids=name)
def test_a_package_is_whole(folder):
    described = project(folder)["project"]
    assert described["name"] == folder.name
    assert re.fullmatch(r">=3\.11(,<3\.\d+)?", described["requires-python"])
    assert described["dynamic"] == ["version"]
    assert (folder / "README.md").read_text("utf-8").startswith(f"# {folder.name}\n")
    assert (folder / "CHANGELOG.md").is_file()
    assert (folder / "changes" / "README.md").is_file()
    assert list(folder.glob("src/*/py.typed"))
    assert list(folder.glob("tests/**/test_*.py"))


@pytest.mark.parametrize("folder", PACKAGES, ids=name)
def test_the_licence_is_the_same_everywhere(folder):
    assert (folder / "LICENSE").read_bytes() == (tree.ROOT / "LICENSE").read_bytes()


@pytest.mark.parametrize("folder", PACKAGES, ids=name)
def test_every_supported_python_is_declared(folder):
    declared = set(project(folder)["project"]["classifiers"])
    for version in interpreters.SUPPORTED:
        assert f"Programming Language :: Python :: {version}" in declared


@pytest.mark.parametrize("folder", PACKAGES, ids=name)
def test_the_readme_tells_the_pythons_of_the_metadata(folder):
    readme = " ".join((folder / "README.md").read_text("utf-8").split())
    told = re.search(r"Python 3\.11 (?:to 3\.(\d+)|or newer)", readme)
    bound = re.search(r"<3\.(\d+)", project(folder)["project"]["requires-python"])
    assert told, "the README does not say which Pythons"
    assert (told[1] and int(told[1]) + 1) == (bound and int(bound[1]))


@pytest.mark.parametrize("folder", PACKAGES, ids=name)
def test_a_version_comes_from_the_tags_of_its_own_package(folder):
    version = project(folder)["tool"]["hatch"]["version"]
    assert version["source"] == "vcs"
    assert version["raw-options"]["tag_regex"].startswith(f"^{folder.name}-v")
    assert f"{folder.name}-v[0-9]*" in version["raw-options"]["git_describe_command"]


@pytest.mark.parametrize("folder", OTHERS, ids=name)
def test_a_package_depends_on_a_range_of_the_core_and_on_no_sibling(folder):
    ours = [d for d in project(folder)["project"]["dependencies"] if d.startswith("agent-saga")]
    assert len(ours) == 1
    assert re.fullmatch(r"agent-saga-core>=[\d.]+(dev0)?,<[\d.]+", ours[0])


@pytest.mark.parametrize("folder", OTHERS, ids=name)
def test_a_package_imports_no_sibling(folder):
    own = folder.name.replace("-", "_")
    for path in folder.glob("src/**/*.py"):
        imported = re.findall(r"(?m)^\s*(?:from|import) (agent_saga\w*)", path.read_text("utf-8"))
        assert set(imported) <= {own, "agent_saga"}, path


@pytest.mark.parametrize("folder", places.shared())
def test_entry_points_lead_somewhere(folder):
    for entry in metadata.distribution(folder.rpartition("/")[2]).entry_points:
        assert entry.load() is not None


@pytest.mark.parametrize("folder", PACKAGES, ids=name)
def test_a_news_fragment_has_a_kind(folder):
    kinds = {kind["directory"] for kind in project(folder)["tool"]["towncrier"]["type"]}
    for fragment in (folder / "changes").glob("*.md"):
        if fragment.name != "README.md":
            assert fragment.name.split(".")[-2] in kinds, f"{fragment.name}: which kind of change?"


def installable():
    """What this project publishes: its packages, and each extra of theirs."""
    for folder in PACKAGES:
        yield folder.name
        for extra in project(folder)["project"].get("optional-dependencies", {}):
            yield f"{folder.name}[{extra}]"


def test_no_text_names_a_package_of_ours_that_is_not_published():
    named = {
        (found, str(path.relative_to(tree.ROOT)))
        for path, text in tree.texts()
        if "_template" not in path.parts
        for line in re.findall(r"pip install ([^\n`]*)", text)
        for found in re.findall(r"\bagent-saga[\w-]*(?:\[\w+\])?", line)
    }
    assert {entry for entry in named if entry[0] not in installable()} == set()


@pytest.mark.parametrize("kind", ["adapters", "connectors"])
def test_a_door_names_what_to_install_only_if_it_is_published(kind):
    published = {folder.name for folder in PACKAGES}
    for path in (PACKAGES[0] / "src" / "agent_saga" / kind).glob("[a-z]*.py"):
        released = f"agent-saga-{path.stem.replace('_', '-')}" in published
        assert ("unreleased=" in path.read_text("utf-8")) is not released, path


@pytest.mark.parametrize("path", CONSTRAINTS, ids=name)
def test_constraints_are_plain_pins(path):
    for line in path.read_text("utf-8").splitlines():
        assert line.startswith("# ") or re.fullmatch(r"[a-z0-9-]+==[\w.]+( ; .*)?", line), line


def groups():
    return project(tree.ROOT)["dependency-groups"]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("lowest", [False, True])
def test_every_dependency_is_pinned_in_every_place(place, lowest):
    chosen = lock.packages(place)
    wanted = [
        line for folder in chosen for line in project(tree.ROOT / folder)["project"]["dependencies"]
    ]
    wanted += [line for group in lock.groups(place, lowest=lowest) for line in groups()[group]]
    names = {bare(line) for line in wanted if isinstance(line, str)}
    ours = {n for n in names if n.startswith("agent-saga")}
    assert names - ours <= pins(places.constraints(place, lowest=lowest))


def test_every_group_of_requirements_is_pinned_at_its_latest_somewhere():
    assert set(groups()) == {
        group for place in PLACES for group in lock.groups(place, lowest=False)
    }


def test_the_constraints_are_those_of_the_places():
    files = {places.constraints(place, lowest=low) for place in PLACES for low in (False, True)}
    assert set(CONSTRAINTS) == files


@pytest.mark.parametrize("folder", [places.CORE, *places.frameworks()])
def test_the_lowest_constraints_are_the_declared_bounds(folder):
    lowest = places.constraints(places.place_of([folder]), lowest=True).read_text("utf-8")
    for requirement in project(tree.ROOT / folder)["project"]["dependencies"]:
        dependency, _, bound = requirement.partition(">=")
        if dependency.startswith("agent-saga"):
            continue
        bound = re.match(r"[\d.]+", bound).group()
        assert re.search(rf"^{dependency}=={re.escape(bound)}(\.0)*( ;.*)?$", lowest, re.MULTILINE)


def test_two_frameworks_are_never_installed_together():
    with pytest.raises(ValueError, match="cannot be installed together"):
        places.place_of(["packages/one", "packages/two"], ("packages/one", "packages/two"))
