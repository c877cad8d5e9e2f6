"""The layers of the design, kept by a test.

A layer imports only what stands before it; the pure ones touch no clock, no chance and nothing
outside; only `evolve` changes a state; functions and files stay short.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Container, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from tools.map import LAYERS, docstring_of, rooms, table

from syntax import nodes_in, walk

SOURCE = Path(__file__).parent.parent / "src" / "anabranch"
TESTS = Path(__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))

FOR_EVERYBODY = {
    *("ages", "cancel", "errors", "ids", "clock", "files", "keccak", "literals", "rates"),
    *("repeating", "settings", "store_files", "settings_file", "version"),
}
COMPOSITION_ROOT = {"app", "parts", "__init__", "__main__"}
PURE = {"expressions", "net", "kernel"}

#: What a pure module may import from outside the package.
PURE_IMPORTS = {
    "__future__", "abc", "ast", "base64", "binascii", "bisect", "collections", "copy",
    "dataclasses", "datetime", "decimal", "difflib", "enum", "fractions", "functools", "hashlib",
    "heapq", "html", "itertools", "json", "keyword", "math", "operator", "re", "statistics",
    "string", "struct", "textwrap", "types", "typing", "unicodedata", "urllib.parse", "msgspec",
}  # fmt: skip
ALSO_ALLOWED = {
    "expressions": {"jinja2", "markupsafe", "contextvars"},  # whose budget: see decision 58
    "kernel": {"threading"},  # what is made late is made by one thread
}
#: Names that reach for the clock, for chance or for the world, wherever they come from.
IMPURE_CALLS = {
    "open", "print", "input", "now", "utcnow", "today", "time", "time_ns", "monotonic",
    "perf_counter", "sleep", "urandom", "uuid1", "uuid4", "getrandbits", "randint", "getenv",
}  # fmt: skip

FUNCTION_LINES_MAX = 60
FILE_LINES_MAX = 600
FOLDER_MODULES_MAX = 20  # `__init__` is not counted
SCREEN = (80, 160)  # lines and columns

#: Folders of tests about several packages at once, so none of the source is their counterpart.
CROSS_CUTTING = {
    "acceptance",  # whole programs: servers, terminals, workers, kills
    "corpus",  # definitions of users, from the text to the result
    "fuzz",  # every reader of bytes from outside
    "xrc",  # dialect, kernel and engine against one oracle
}


def name_of(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def layer_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).parts
    return parts[0] if len(parts) > 1 else path.stem


TELLING = {
    ast.If, ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.Constant,
    ast.Attribute, ast.Call, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Delete,
}  # fmt: skip


class Facts(NamedTuple):
    """What the tests ask about a file, with its lines: the tree itself would be kept too long."""

    imports: list[tuple[ast.Import | ast.ImportFrom, bool]]
    """And whether only annotations need them."""
    functions: list[tuple[int, str, int]]  # their names, and how many lines they have
    calls: list[tuple[int, str]]  # of the clock, of chance or of the world
    words: list[tuple[int, str]]  # texts with a command line in them
    cores: list[tuple[int, str]]  # whose core is reached for
    changes: list[int]  # of something that hangs on a state
    assignments: list[int]  # to something below a state that is not one's own
    swallowed: list[int]  # cancellations


@cache
def facts_of(path: Path) -> Facts:
    """Each file is parsed and walked once for all of the tests."""
    return facts_in(path.read_text(encoding="utf-8"))


def facts_in(text: str) -> Facts:
    facts = Facts([], [], [], [], [], [], [], [])
    for_types = set[ast.AST]()
    for node in nodes_in(text):
        if type(node) not in TELLING:
            continue  # most of them
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            for_types.update(walk(node))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            facts.imports.append((node, node in for_types))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            facts.functions.append((node.lineno, node.name, body_lines(node)))
        elif isinstance(node, ast.Constant) and "anabranch " in str(node.value):
            facts.words.append((node.lineno, str(node.value)))
        elif isinstance(node, ast.Attribute) and node.attr in {"core", "_core"}:
            facts.cores.append((node.lineno, ast.unparse(node.value)))
        elif isinstance(node, ast.Call):
            note_call(node, facts)
        if isinstance(node, ast.Call | ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Delete):
            note_change(node, facts)
    return facts


def note_call(node: ast.Call, facts: Facts) -> None:
    name = called_name(node)
    if name in IMPURE_CALLS:
        facts.calls.append((node.lineno, name))
    if name.endswith("suppress") and any(
        ast.unparse(one).endswith("CancelledError") for one in node.args
    ):
        facts.swallowed.append(node.lineno)


def note_change(node: ast.stmt | ast.Call, facts: Facts) -> None:
    if changes_state(node):
        facts.changes.append(node.lineno)
    if isinstance(node, ast.Assign | ast.AugAssign):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(target, ast.Attribute | ast.Subscript):
                chain = chain_of(target)
                if "state" in chain[:-1] and chain[0] != "self":
                    facts.assignments.append(node.lineno)


def imports_of(path: Path, *, for_types: bool = False) -> Iterator[tuple[str, int]]:
    """Every module a file imports, also inside functions, with the line; with `for_types` also
    what only annotations need."""
    package = ["anabranch", *path.relative_to(SOURCE).parts[:-1]]
    for node, only_types in facts_of(path).imports:
        if only_types and not for_types:
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
            continue
        base = package[: len(package) - node.level + 1] if node.level else []
        module = ".".join([*base, *([node.module] if node.module else [])])
        yield module, node.lineno
        for alias in node.names:
            yield f"{module}.{alias.name}", node.lineno


def may_import(layer: str, other: str) -> bool:
    if other in FOR_EVERYBODY or layer == other or layer in COMPOSITION_ROOT:
        return True
    if layer == "testing":
        return other != "surfaces"
    if layer == "surfaces":
        return True  # the outermost: it is put together by the root and offers the testing kit
    if layer not in LAYERS or other not in LAYERS:
        return False
    return LAYERS.index(other) < LAYERS.index(layer)


@cache
def inside(module: str) -> str:
    """The layer or root module of ours that is imported, or nothing."""
    package, _, rest = module.partition(".")
    name = rest.partition(".")[0]
    ours = (SOURCE / name).is_dir() or (SOURCE / f"{name}.py").is_file()
    return name if package == "anabranch" and name and ours else ""


def test_a_layer_imports_only_what_stands_before_it() -> None:
    wrong = [
        f"{name_of(path)}:{line} imports {module}"
        for path in FILES
        for module, line in imports_of(path)
        if (other := inside(module)) and not may_import(layer_of(path), other)
    ]
    assert not wrong


def test_every_folder_has_its_place_in_the_order() -> None:
    folders = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()}
    assert folders <= {*LAYERS, "testing"}


# -- no module needs itself ------------------------------------------------------------------------


def module_of(path: Path) -> str:
    """`runtime/jobs/wire.py` → runtime.jobs.wire; a package is named as its folder."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def import_graph() -> dict[str, set[str]]:
    """Which of our modules each of them imports: at once, later in a function, or for types."""
    modules = {module_of(path): path for path in FILES}
    return {module: needed_by(path, modules) - {module} for module, path in modules.items()}


def needed_by(path: Path, modules: Container[str]) -> set[str]:
    by_line: dict[int, set[str]] = {}
    for name, line in imports_of(path, for_types=True):
        package, _, module = name.partition(".")
        if package == "anabranch":
            by_line.setdefault(line, set()).add(module)
    needed: set[str] = set()
    for names in by_line.values():
        # `from package import module` needs the module, and of the package no more than any import
        # from it does.
        only_way = {
            package
            for package in names
            if (
                inside := {name for name in names if name.rpartition(".")[0] == package} - {package}
            )
            and all(name in modules for name in inside)
        }
        needed |= {name for name in names - only_way if name in modules}
    return needed


def rings(graph: dict[str, set[str]]) -> set[frozenset[str]]:
    """The strongly connected components of more than one module (Tarjan)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    found: set[frozenset[str]] = set()

    def visit(module: str) -> None:
        number[module] = lowest[module] = len(number)
        path.append(module)
        for other in graph[module]:
            if other not in number:
                visit(other)
            if other in path:
                lowest[module] = min(lowest[module], lowest[other])
        if lowest[module] == number[module]:
            at = path.index(module)
            if len(path) - at > 1:
                found.add(frozenset(path[at:]))
            del path[at:]

    for module in graph:
        if module not in number:
            visit(module)
    return found


def test_no_module_imports_itself_by_way_of_others_annotations_included() -> None:
    """An import inside a function may put off the cost of a module; it may not hide a ring."""
    assert [sorted(ring) for ring in rings(import_graph())] == []


@pytest.mark.parametrize(
    ("graph", "found"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": set()}, []),
        ({"a": {"b"}, "b": {"a"}, "c": {"a"}}, [{"a", "b"}]),
        (
            {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}},
            [{"a", "b", "c"}, {"d", "e"}],
        ),
        ({"a": {"b", "c"}, "b": {"d"}, "c": {"d"}, "d": set()}, []),
    ],
)
def test_rings_are_found(graph: dict[str, set[str]], found: list[set[str]]) -> None:
    assert rings(graph) == {frozenset(ring) for ring in found}


def test_the_graph_sees_imports_for_types_and_inside_functions() -> None:
    graph = import_graph()
    assert "operations.definitions.bundles" in graph["operations.definitions.prepare"], "later"
    assert "operations.read.dispatches" in graph["operations.read.reader"], "for types"
    assert "runtime.core" in graph["runtime.engine"]


def test_dialects_do_not_see_the_kernels_state() -> None:
    """They compile; running is none of their business."""
    allowed = {"anabranch.kernel.values"}
    wrong = [
        f"{name_of(path)}:{line} imports {module}"
        for path in FILES
        if layer_of(path) == "dialects"
        for module, line in imports_of(path)
        if module.startswith("anabranch.kernel")
        and not any(module == ok or module.startswith(f"{ok}.") for ok in allowed)
    ]
    assert not wrong


def test_the_core_of_an_engine_is_private_to_the_runtime() -> None:
    """Others ask the engine; the testing kit drives a core of its own in its place."""
    wrong = [
        f"{name_of(path)}:{line} imports {module}"
        for path in FILES
        if layer_of(path) not in {"runtime", "testing"}
        for module, line in imports_of(path, for_types=True)
        if module.startswith("anabranch.runtime.core")
    ]
    wrong += [
        f"{name_of(path)}:{line} reaches into the core"
        for path in FILES
        if layer_of(path) != "runtime"
        for line, whose in facts_of(path).cores
        if layer_of(path) != "testing" or whose != "self"
    ]
    assert not wrong


PURE_FILES = [path for path in FILES if layer_of(path) in PURE]


def test_pure_folders_import_nothing_that_reaches_outside() -> None:
    wrong = [
        f"{name_of(path)}:{line} imports {module}"
        for path in PURE_FILES
        for allowed in [PURE_IMPORTS | ALSO_ALLOWED.get(layer_of(path), set())]
        for module, line in imports_of(path)
        if not module.startswith("anabranch")
        and not any(module == ok or module.startswith(f"{ok}.") for ok in allowed)
    ]
    assert not wrong


def test_pure_folders_call_no_clock_no_chance_and_nothing_outside() -> None:
    wrong = [
        f"{name_of(path)}:{line} calls {name}"
        for path in PURE_FILES
        for line, name in facts_of(path).calls
    ]
    assert not wrong


def called_name(node: ast.Call) -> str:
    called = node.func
    return called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")


def test_the_kernel_writes_no_command_lines() -> None:
    """It says verb and target; operations and surfaces put that into words."""
    wrong = [
        f"{name_of(path)}:{line} {text}"
        for path in FILES
        if layer_of(path) == "kernel"
        for line, text in facts_of(path).words
    ]
    assert not wrong


# -- evolve is the only mutator --------------------------------------------------------------------

#: `reducers` works on whatever mapping it is given; `evolve` gives it the context of a state.
MUTATORS = {
    "evolve.py", "evolve_gathers.py", "evolve_jobs.py", "evolve_loops.py", "evolve_signals.py",
    "evolve_tokens.py",
    "reducers.py", "state.py",
}  # fmt: skip
CHANGING_METHODS = {
    "append", "extend", "insert", "pop", "popitem", "remove", "clear", "update", "setdefault",
    "sort", "reverse", "add", "discard", "set", "drop",
}  # fmt: skip
STATE_WORDS = {
    "state", "token", "job", "gather", "scope", "gate", "timers", "counts", "tokens", "jobs",
    "gathers", "scopes", "gates", "held", "joins", "steps", "results", "ctx", "live", "members",
    "barriers", "filled", "lost",
}  # fmt: skip


def chain_of(node: ast.AST) -> list[str]:
    """`turn.state.jobs[x].phase` → turn, state, jobs, phase."""
    names: list[str] = []
    while True:
        if isinstance(node, ast.Attribute):
            names.append(node.attr)
            node = node.value
        elif isinstance(node, ast.Subscript):
            node = node.value
        elif isinstance(node, ast.Name):
            return [node.id, *reversed(names)]
        else:
            return ["", *reversed(names)]


def changes_state(node: ast.AST) -> bool:
    """An assignment to, or a changing call on, something that hangs on a state."""
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = list(node.targets)
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        targets = [node.target]
    elif isinstance(node, ast.Delete):
        targets = list(node.targets)
    for target in targets:
        if isinstance(target, ast.Attribute | ast.Subscript):
            chain = chain_of(target)
            if chain[0] in STATE_WORDS or "state" in chain:
                return True
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        chain = chain_of(node.func)
        owner = chain[:-1]
        if chain[-1] in CHANGING_METHODS and len(owner) > 1:
            return owner[0] in STATE_WORDS or "state" in owner
    return False


KERNEL_FILES = [path for path in FILES if layer_of(path) == "kernel" and path.name not in MUTATORS]


def test_evolve_is_the_only_code_that_changes_a_state() -> None:
    wrong = [f"{name_of(path)}:{line}" for path in KERNEL_FILES for line in facts_of(path).changes]
    assert not wrong


def test_nothing_outside_the_kernel_changes_a_state() -> None:
    wrong = [
        f"{name_of(path)}:{line}"
        for path in FILES
        if layer_of(path) not in {"kernel", "testing"}
        for line in facts_of(path).assignments
    ]
    assert not wrong


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        ("state.busy += 1", True),
        ("turn.state.jobs['x'] = job", True),
        ("token.phase = 'x'", True),
        ("turn.state.tokens[1].phase = 'x'", True),
        ("del state.tokens[1]", True),
        ("turn.state.ctx.update(x=1)", True),
        ("gather.filled.pop(3)", True),
        ("turn.dirty[scope] = True", False),
        ("token = turn.state.tokens[1]", False),
        ("names['ctx'] = 1", False),
        ("jobs.append(1)", False),
    ],
)
def test_the_check_itself_sees_what_it_should(code: str, changes: bool) -> None:
    assert bool(facts_in(code).changes) is changes


@pytest.mark.parametrize(
    ("code", "kind", "found"),
    [
        ('async def f():\n    "Says."\n    a = 1\n    return a', "functions", [(1, "f", 2)]),
        ("x = datetime.now()", "calls", [(1, "now")]),
        ("open('x')", "calls", [(1, "open")]),
        ("x = 'anabranch show it'", "words", [(1, "anabranch show it")]),
        ("self._engine._core.x()", "cores", [(1, "self._engine")]),
        ("run.state.jobs['x'] = 1", "assignments", [1]),
        ("self.state.jobs = 1", "assignments", []),
        ("x = run.state.jobs", "assignments", []),
        ("with contextlib.suppress(asyncio.CancelledError):\n    pass", "swallowed", [1]),
        ("with suppress(KeyError, CancelledError):\n    pass", "swallowed", [1]),
        ("with suppress(KeyError):\n    pass", "swallowed", []),
    ],
)
def test_a_file_tells_what_the_tests_ask(code: str, kind: str, found: list[object]) -> None:
    assert getattr(facts_in(code), kind) == found


# -- the ratchet -----------------------------------------------------------------------------------


def test_no_cancellation_of_ones_own_is_swallowed() -> None:
    """`suppress(CancelledError)` around an `await` does: `cancel_and_wait` does not."""
    swallowed = [f"{name_of(path)}:{line}" for path in FILES for line in facts_of(path).swallowed]
    assert swallowed == []


def test_functions_stay_short() -> None:
    long = [
        f"{name_of(path)}:{line} {name} has {lines} lines"
        for path in FILES
        for line, name, lines in facts_of(path).functions
        if lines > FUNCTION_LINES_MAX
    ]
    assert not long


def test_files_stay_short() -> None:
    long = [
        f"{name_of(path)} has {lines} lines"
        for path in FILES
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > FILE_LINES_MAX
    ]
    assert not long


def test_no_folder_but_the_kernels_has_more_modules_than_a_reader_takes_in() -> None:
    """The names in `kernel` carry it: `evolve_…`, `laws_…`, and one module a thing of the net."""
    crowded = [
        f"{name_of(folder)} has {modules} modules"
        for folder in {path.parent for path in FILES}
        if folder != SOURCE / "kernel"
        and (modules := sum(one.name != "__init__.py" for one in folder.glob("*.py")))
        > FOLDER_MODULES_MAX
    ]
    assert not crowded


def test_the_tests_mirror_the_source() -> None:
    """Who knows where a module is knows where its tests are."""
    folders = {path.parent.relative_to(TESTS) for path in TESTS.rglob("*.py")} - {Path()}
    assert folders >= {Path(name) for name in (*LAYERS, "testing")}, "a layer without tests"
    strange = [
        f"tests/{folder} has no counterpart src/anabranch/{folder}"
        for folder in folders
        if folder.parts[0] not in CROSS_CUTTING and not (SOURCE / folder / "__init__.py").exists()
    ]
    assert not strange


def sentences(text: str) -> int:
    """Those of prose: a name with a dot in it, or a block of code, ends none."""
    prose = [line for line in text.splitlines() if not line.startswith("    ")]
    return len(re.findall(r"[.!?](?=\s|$)", " ".join(prose).replace("PURE. ", "")))


def test_every_package_says_what_lives_there_and_what_may_not() -> None:
    folders = {path.parent for path in FILES}
    silent = [name_of(one) for one in folders if not (one / "__init__.py").is_file()]
    silent += [
        f"{name_of(one)} says: {said!r}"
        for one in folders
        if (one / "__init__.py").is_file()
        and sentences(said := docstring_of(one / "__init__.py")) < 2
    ]
    assert not silent


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ("One thing.", 1),
        ("PURE. One thing.", 1),
        ("`read.py` is the way in; see 1.5", 0),
        ("One thing.\n\n    code. code.\n", 1),
        ("One thing.\n\nAnd not another.", 2),
    ],
)
def test_sentences_are_counted(text: str, count: int) -> None:
    assert sentences(text) == count


def test_the_map_shows_every_room_on_one_screen() -> None:
    lines = table(rooms(), SCREEN[1]).splitlines()
    assert len(lines) <= SCREEN[0]
    assert max(map(len, lines)) <= SCREEN[1]
    shown = {line.split("/")[0].strip() for line in lines}
    assert {path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()} <= shown
    modules = sum(path.name != "__init__.py" for path in FILES)
    assert lines[-1].split() == ["in", "all", str(modules), f"{total_lines():,}"]


def total_lines() -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in FILES)


def body_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Without the signature and the docstring."""
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
