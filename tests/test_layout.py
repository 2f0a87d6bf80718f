"""How the repository reads: sizes, docstrings, and what must stand in no file."""

from __future__ import annotations

import ast
import re
import statistics

import pytest

from tools import tree

LONGEST_FILE = 400
LONGEST_FUNCTION = 60
MEDIAN_FUNCTION = 10

# Written in parts, so that this file passes its own test.
REGISTRIES = [
    "py" + "pi.org",
    "python" + "hosted.org",
    "npm" + "js.org",
    "cra" + "tes.io",
    "proxy.go" + "lang.org",
    "conda" + ".anaconda.org",
    "quay" + ".io",
]
PLACES = [r"(?<![\w.])/wo" + r"rk/", r"(?<![\w.])/ro" + r"ot/", r"/ho" + r"me/\w+/"]

CORE = tree.ROOT / "agent-saga-core" / "src" / "agent_saga"
PYTHON = [path for path in tree.files() if path.suffix == ".py"]
OUR_CODE = [path for path in PYTHON if "tests" not in path.parts]


def name(path):
    return str(path.relative_to(tree.ROOT))


def functions(path):
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [
        node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, kinds)
    ]


def holding(pattern):
    return [name(path) for path, text in tree.texts() if re.search(pattern, text)]


def length(function):
    """Lines of a function without its docstring, which has to name every argument."""
    first = function.body[0]
    documented = ast.get_docstring(function) is not None
    words = first.end_lineno - first.lineno + 1 if documented else 0
    return function.end_lineno - function.lineno + 1 - words


@pytest.mark.parametrize("path", OUR_CODE, ids=name)
def test_files_are_short(path):
    assert len(path.read_text("utf-8").splitlines()) <= LONGEST_FILE


@pytest.mark.parametrize("path", OUR_CODE, ids=name)
def test_functions_are_short(path):
    assert [f.name for f in functions(path) if length(f) > LONGEST_FUNCTION] == []


def test_most_functions_are_very_short():
    lengths = [length(function) for path in tree.sources() for function in functions(path)]
    assert statistics.median(lengths) <= MEDIAN_FUNCTION


@pytest.mark.parametrize("path", OUR_CODE, ids=name)
def test_every_module_says_its_rules(path):
    assert ast.get_docstring(ast.parse(path.read_text("utf-8")))


def test_contributing_says_where_every_folder_is():
    text = (tree.ROOT / "CONTRIBUTING.md").read_text("utf-8")
    layers = {path.relative_to(CORE).parts[0] for path in PYTHON if path.is_relative_to(CORE)}
    folders = {
        p.parts[0] for path in tree.files() if len((p := path.relative_to(tree.ROOT)).parts) > 1
    }
    named = set(re.findall(r"`([\w-]+)/?`", text))
    assert {name for name in layers if not name.endswith(".py")} <= named
    assert {name for name in folders if not name.startswith(".")} <= named


def test_nothing_is_left_for_later():
    assert holding(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b") == []


def test_no_file_names_a_package_registry():
    assert holding("|".join(map(re.escape, REGISTRIES))) == []


def test_no_file_names_a_place_on_one_machine():
    assert holding("|".join(PLACES)) == []


def test_nothing_generated_is_kept():
    generated = {".pyc", ".whl", ".lock", ".log"}
    assert [name(path) for path in tree.files() if path.suffix in generated] == []


def test_every_line_of_text_ends_as_it_should():
    wrong = [
        name(path)
        for path, text in tree.texts()
        if text
        and (not text.endswith("\n") or "\r" in text or re.search(r"[ \t]+$", text, re.MULTILINE))
    ]
    assert wrong == []
