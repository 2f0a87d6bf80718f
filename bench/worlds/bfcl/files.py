"""Rows of the file system: what was under a name comes back as it was.

The tool that moves a file cannot move it up again, so a name is restored by its content: read
before the call by changing into each folder, listing and showing, and written the same way. The
working directory is the session's own state and is taken back, too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from bench.worlds import plans
from bench.worlds.plans import MISSING, UNCLEAR, Read, Write
from bench.worlds.world import Args, Tools, WorldError


def _here(tools: Tools) -> str:
    return str(tools("pwd")["current_working_directory"])


def _go(tools: Tools, path: str) -> None:
    tools("cd", folder="/")
    for part in path.strip("/").split("/")[1:]:
        tools("cd", folder=part)


def _read(tools: Tools, name: str) -> Any:
    """Return what lies under a name of this folder: None, a text, or a dict of what is in it."""
    if name not in tools("ls", a=True)["current_directory_content"]:
        return None
    try:
        return tools("cat", file_name=name)["file_content"]
    except WorldError:
        back = _here(tools)
        tools("cd", folder=name)
        inside = tools("ls", a=True)["current_directory_content"]
        found = {item: _read(tools, item) for item in inside}
        _go(tools, back)
        return found


def _write(tools: Tools, name: str, content: Any) -> None:
    if isinstance(content, str):
        tools("touch", file_name=name)
        if content:
            tools("echo", content=content, file_name=name)
        return
    tools("mkdir", dir_name=name)
    back = _here(tools)
    tools("cd", folder=name)
    for item, inner in content.items():
        _write(tools, item, inner)
    _go(tools, back)


def _put_back(tools: Tools, name: str, content: Any) -> None:
    now = _read(tools, name)
    if now == content:
        return
    if now is not None:
        tools("rm", file_name=name)
    if content is not None:
        _write(tools, name, content)


def _names(tools: Tools, args: Args) -> list[str]:
    """Return the names that a call may change: in this folder, or in one that it moves into.

    What else lies in that folder is not its own: others may have put it there.
    """
    fields = ("dir_name", "file_name", "source", "destination")
    names = list(dict.fromkeys(str(args[field]) for field in fields if args.get(field)))
    into = args.get("destination")
    if into and isinstance(_read(tools, str(into)), dict):
        names = [name for name in names if name != into] + [f"{into}/{args['source']}"]
    return names


def _at(tools: Tools, name: str, do: Callable[[str], Any]) -> Any:
    """Do something with a name in the folder that it lies in."""
    folder, _, last = name.rpartition("/")
    if not folder:
        return do(last)
    back = _here(tools)
    tools("cd", folder=folder)
    try:
        return do(last)
    finally:
        _go(tools, back)


def _look(tools: Tools, args: Args) -> Any:
    was = {}
    for name in _names(tools, args):
        was[name] = _at(tools, name, partial(_read, tools))
    return {"in": _here(tools), "was": was}


def _look_there(tools: Tools, args: Args, before: Any) -> Any:
    """Look at the same names, in the folder that the call was made in."""
    back = _here(tools)
    _go(tools, before["in"])
    was = {name: _at(tools, name, partial(_read, tools)) for name in before["was"]}
    _go(tools, back)
    return {"in": before["in"], "was": was}


def _undo(tools: Tools, args: Args, before: Any, result: Any) -> None:
    back = _here(tools)
    _go(tools, before["in"])
    for name, content in before["was"].items():
        _at(tools, name, partial(_put_back, tools, content=content))
    _go(tools, back)


def _look_where(tools: Tools, args: Args) -> Any:
    return _here(tools)


def _undo_cd(tools: Tools, args: Args, before: Any, result: Any) -> None:
    _go(tools, before)


def _changed_folder(args: Args, before: Any, now: Any) -> Any:
    if now == before:
        return MISSING
    return {"current_working_directory": now} if now == _target(args, before) else UNCLEAR


def _moved_on(args: Args, before: Any, now: Any) -> str:
    return "the session has gone elsewhere" if now not in (before, _target(args, before)) else ""


def _target(args: Args, before: str) -> str:
    folder = str(args["folder"]).rstrip("/") or "/"
    if folder == "/":
        return "/" + before.strip("/").split("/", maxsplit=1)[0]
    if folder == "..":
        return before.rpartition("/")[0]
    return f"{before}/{folder}"


_CHANGE: Final = Write(_look, _undo, later=_look_there)

TABLE: Final[dict[str, plans.Plan]] = {
    "cd": Write(_look_where, _undo_cd, _changed_folder, unshown=_moved_on, harmless=True),
    **dict.fromkeys(("mkdir", "touch", "echo", "mv", "rm", "rmdir", "cp"), _CHANGE),
    **dict.fromkeys(
        ("pwd", "ls", "cat", "find", "wc", "sort", "grep", "du", "tail", "diff"), Read()
    ),
}
