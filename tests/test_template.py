"""Framework packages follow their template, and what the template makes is a package that works."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from agent_saga_testing.integration.shape import PARAMETERS
from tools import new_framework, places, tree
from tools.new_framework import Framework

SPECIMEN = Framework("specimen", "Specimen Agents", "click", "click", "8", "9")
FORMS = ("seams.py", "tests/test_wrapping.py", "/changes/+")
"""Files whose like another package may have under other names."""


def framework_of(package):
    """Return the framework that a package says it is for, in the template's words."""
    name = Path(package).name.removeprefix("agent-saga-")
    folder = tree.ROOT / package / "src" / places.import_name(package)
    [ranges] = [
        ast.literal_eval(line.value)
        for line in ast.parse((folder / "versions.py").read_text("utf-8")).body
        if isinstance(line, ast.AnnAssign) and ast.unparse(line.target) == "RANGES"
    ]
    requires, (lowest, below) = next(iter(ranges.items()))
    registered = re.search(
        r"Register (.*) and the range", (folder / "plugin.py").read_text("utf-8")
    )
    numbers = [".".join(map(str, bound)) for bound in (lowest, below)]
    return Framework(name, registered[1].removeprefix("the "), requires, "", *numbers)


def rendered(framework):
    return {
        path: text
        for path, text in new_framework.rendered(framework)
        if path.startswith(f"{framework.package}/")
    }


def without(text, *kinds):
    """Return a description without what each package says in words of its own."""
    described = tomllib.loads(text)
    project = described["project"]
    for kind in kinds:
        project.pop(kind, None)
    project["requires-python"] = project["requires-python"].partition(",")[
        0
    ]  # a framework's own end
    project["dependencies"] = [
        line for line in project["dependencies"] if line.startswith("agent-saga")
    ]
    return described


@pytest.mark.parametrize("package", places.frameworks())
class TestAPackage:
    def test_it_has_the_files_of_the_template(self, package):
        ours = rendered(framework_of(package))
        missing = [
            path
            for path in ours
            if not (tree.ROOT / path).is_file() and not any(form in path for form in FORMS)
        ]
        assert missing == []

    def test_it_is_described_as_the_template_describes_it(self, package):
        path = f"{package}/pyproject.toml"
        words = ("description", "keywords", "optional-dependencies")
        ours = without((tree.ROOT / path).read_text("utf-8"), *words)
        assert ours == without(rendered(framework_of(package))[path], *words)

    def test_it_registers_itself_and_declares_its_range_as_the_template_does(self, package):
        ours = rendered(framework_of(package))
        [plugin] = [path for path in ours if path.endswith("/plugin.py")]
        [path] = (tree.ROOT / package / "src").glob("*/plugin.py")
        assert hook_of(path.read_text("utf-8")) == hook_of(ours[plugin])

    def test_its_door_loads_late_and_has_the_names_of_all_packages(self, package):
        [path] = (tree.ROOT / package / "src").glob("*/__init__.py")
        door = ast.parse(path.read_text("utf-8"))
        [homes] = [
            ast.literal_eval(line.value)
            for line in door.body
            if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "_HOME"
        ]
        assert set(homes) >= set(PARAMETERS)
        imported = [line.module for line in door.body if isinstance(line, ast.ImportFrom)]
        assert imported == [
            "__future__",
            "typing",
            "agent_saga.kit.frameworks.door",
            f"{places.import_name(package)}.versions",
        ]

    def test_its_shape_is_tested(self, package):
        text = (tree.ROOT / package / "tests" / "test_package.py").read_text("utf-8")
        assert "(PackageShape):" in text
        assert f'package = "{places.import_name(package)}"' in text


def code_of(text):
    """Return a module's code without its docstrings."""
    module = ast.parse(text)
    for node in ast.walk(module):
        if isinstance(node, (ast.Module, ast.FunctionDef)) and ast.get_docstring(node):
            node.body = node.body[1:]
    return ast.unparse(module)


def hook_of(text):
    """Return how a plugin registers itself; a package may have further hooks."""
    [hook] = [
        node
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef) and node.name == "saga_register_integrations"
    ]
    return code_of(ast.unparse(hook))


def test_the_template_is_no_package():
    assert not any("_template" in package for package in places.packages())
    assert all(
        path.name.endswith(new_framework.SUFFIX)
        for path in new_framework.TEMPLATE.rglob("*")
        if path.is_file()
    )


def test_no_word_of_the_template_is_left_in_a_package():
    texts = [*new_framework.rendered(SPECIMEN)]
    assert [path for path, text in texts if "«" in path + text] == []


def test_nothing_is_written_over(tmp_path):
    new_framework.written(SPECIMEN, tmp_path)
    with pytest.raises(FileExistsError, match="Nothing was written"):
        new_framework.written(SPECIMEN, tmp_path)


@pytest.mark.parametrize(
    "wrong",
    [
        ["No_Name", "--from", "1", "--below", "2"],
        ["name", "--from", "one", "--below", "2"],
        ["name", "--from", "1"],
    ],
)
def test_what_does_not_fit_is_refused(wrong, capsys):
    with pytest.raises(SystemExit):
        new_framework.main(wrong)
    assert "usage:" in capsys.readouterr().err


@pytest.fixture(scope="module")
def specimen(tmp_path_factory):
    """A package that was just written, as one that is installed: its metadata lie beside it."""
    root = tmp_path_factory.mktemp("workspace")
    new_framework.written(SPECIMEN, root)
    described = tomllib.loads((root / SPECIMEN.package / "pyproject.toml").read_text("utf-8"))
    project = described["project"]
    site = root / SPECIMEN.package / "src"
    info = site / "agent_saga_specimen-0.1.dist-info"
    info.mkdir()
    needs = "".join(f"Requires-Dist: {line}\n" for line in project["dependencies"])
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.4\nName: {project['name']}\nVersion: 0.1\n{needs}", "utf-8"
    )
    points = project["entry-points"]["agent_saga"].items()
    lines = "".join(f"{name} = {module}\n" for name, module in points)
    (info / "entry_points.txt").write_text(f"[agent_saga]\n{lines}", "utf-8")
    return root


def run(root, *arguments):
    """Run Python where a specimen is installed, with its door in the core."""
    program = (
        "import runpy, sys, agent_saga.adapters as doors\n"
        f"doors.__path__.append({str(root / 'agent-saga-core/src/agent_saga/adapters')!r})\n"
        "sys.argv = sys.argv[1:]\n"
        "if sys.argv[0] == 'pytest':\n"
        "    import pytest\n"
        "    sys.exit(pytest.main(sys.argv[1:]))\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    paths = [str(root / SPECIMEN.package / "src"), *filter(None, sys.path)]
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=root,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("kind", ["test_package", "test_wrapping"])
def test_a_package_that_was_just_written_passes_its_tests(specimen, kind):
    path = str(specimen / SPECIMEN.package / "tests" / f"{kind}.py")
    done = run(specimen, "pytest", "-q", "-p", "no:cacheprovider", path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_package_that_was_just_written_passes_the_kit_in_one_line(specimen):
    path = str(specimen / SPECIMEN.package / "tests" / "test_conformance.py")
    how = ["-q", "-p", "no:cacheprovider", "-m", "not crash", "-k", "TestOneLine"]
    done = run(specimen, "pytest", *how, path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_its_example_runs(specimen):
    done = run(specimen, str(specimen / "examples" / "specimen_agent.py"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the saga left what was there before" in done.stdout
