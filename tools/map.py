"""The rooms of the house on one screen: `make map`, or `make map ROOM=work` for one of them.

A room is a package. Each has a line with its modules, its lines of code and the first sentence of
its docstring; packages below the second level count with the one they are in.
"""

from __future__ import annotations

import ast
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).parent.parent / "src" / "anabranch"
#: The order in which layers stand: each may import itself and whatever stands before it.
LAYERS = (
    "expressions",
    "net",
    "kernel",
    "dialects",
    "store",
    "work",
    "runtime",
    "market",
    "operations",
    "pools",
    "modules",
    "surfaces",
)
DEPTH = 2
WIDTH = 132


class Room(NamedTuple):
    """A package, with those inside it that have no line of their own."""

    name: str
    modules: int
    lines: int
    summary: str


def rooms(below: str = "", depth: int = DEPTH) -> list[Room]:
    """The packages below this one, in the order of the layers; "" is the whole."""
    root = SOURCE / below
    folders = sorted((one.parent for one in root.rglob("__init__.py")), key=_place)
    names = {folder: str(folder.relative_to(root)) for folder in folders}
    shown = {one: list[Path]() for one in folders if one == root or names[one].count("/") < depth}
    for file in root.rglob("*.py"):
        shown[next(one for one in file.parents if one in shown)].append(file)
    return [_room(folder, files) for folder, files in shown.items()]


def _place(folder: Path) -> tuple[int, str]:
    name = folder.relative_to(SOURCE).as_posix()
    layer = name.partition("/")[0]
    first = -1 if name == "." else LAYERS.index(layer) if layer in LAYERS else len(LAYERS)
    return first, name


def _room(folder: Path, files: list[Path]) -> Room:
    lines = sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)
    modules = sum(file.name != "__init__.py" for file in files)
    name = folder.relative_to(SOURCE.parent).as_posix()
    return Room(name, modules, lines, summary_of(folder / "__init__.py"))


def docstring_of(file: Path) -> str:
    return ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""


def summary_of(file: Path) -> str:
    """The first paragraph, which is one sentence."""
    return " ".join(docstring_of(file).partition("\n\n")[0].split())


def table(found: list[Room], width: int = WIDTH) -> str:
    rows = [(_indented(room.name), room) for room in found]
    first = max(len(name) for name, _ in rows)
    lines = [f"{'room':{first}}  modules   lines  what lives there"]
    lines += [
        f"{name:{first}}  {room.modules:7}  {room.lines:6,}  {room.summary}" for name, room in rows
    ]
    total = (
        f"{'in all':{first}}  {sum(r.modules for r in found):7}  {sum(r.lines for r in found):6,}"
    )
    return "\n".join(
        line if len(line) <= width else f"{line[: width - 1]}…" for line in [*lines, total]
    )


def _indented(name: str) -> str:
    depth = name.count("/")
    return f"{'  ' * (depth - 1)}{name.rpartition('/')[2]}/" if depth else f"{name}/"


def main(arguments: list[str]) -> int:
    below = arguments[0].strip("/") if arguments else ""
    if not (SOURCE / below / "__init__.py").is_file():
        print(f"there is no room {below!r}: name a folder of src/anabranch, such as work/kinds")
        return 2
    width = max(80, shutil.get_terminal_size((WIDTH, 50)).columns)
    print(table(rooms(below, DEPTH if not below else 9), width))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
