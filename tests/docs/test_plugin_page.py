"""The page for authors of plugins writes by hand what an installer would write."""

from __future__ import annotations

import tomllib

from tools import pages, tree

PAGE = (tree.ROOT / "docs" / "how-to" / "write-a-plugin.md").read_text("utf-8")


def test_what_the_page_writes_is_what_its_project_says():
    [described] = [block.text for block in pages.blocks(PAGE) if block.language == "toml"]
    project = tomllib.loads(described)["project"]
    [(group, entries)] = project["entry-points"].items()
    [(entry, module)] = entries.items()
    assert f"[{group}]\\n{entry} = {module}\\n" in PAGE
    assert f"Name: {project['name']}\\nVersion: {project['version']}\\n" in PAGE
    assert f"# {module}.py" in PAGE
