"""The noxfile is the one truth: whatever else names a session names one that exists."""

from __future__ import annotations

import ast
import configparser
import re

from tools import interpreters, tree

NOXFILE = ast.parse((tree.ROOT / "noxfile.py").read_text("utf-8"))
PROMISED = {
    *("tests", "packages", "conformance", "crash", "property", "typing", "docs", "examples"),
    *("lint", "imports", "guards", "mutants", "wheels", "bench", "demo", "full"),
}


def is_session(node):
    decorators = getattr(node, "decorator_list", [])
    return any("nox.session" in ast.unparse(decorator) for decorator in decorators)


def sessions():
    return {node.name for node in NOXFILE.body if is_session(node)}


def named(page):
    text = (tree.ROOT / page).read_text("utf-8")
    calls = re.findall(r'nox (?:-s|--session)((?: (?!--)"?[\w.()-]+"?)+)', text)
    return {re.sub(r"\(.*\)$", "", name.strip('"')) for call in calls for name in call.split()}


def test_every_promised_session_exists():
    assert sessions() >= PROMISED


def test_pages_name_sessions_that_exist():
    assert named("CONTRIBUTING.md") | named("RELEASING.md") <= sessions()


def test_tox_names_sessions_that_exist():
    parser = configparser.ConfigParser()
    parser.read(tree.ROOT / "tox.ini", "utf-8")
    environments = re.sub(r",\s*py\{[^}]*\}", "", parser["tox"]["env_list"])
    assert {name.strip() for name in environments.split(",")} <= sessions()
    for version in interpreters.SUPPORTED:
        line = f'py{version.replace(".", "")}: nox --session "tests({version})"'
        assert line in parser["testenv"]["commands"]


def test_every_session_says_what_it_is_for():
    assert [
        node.name for node in NOXFILE.body if is_session(node) and not ast.get_docstring(node)
    ] == []
