"""The dialects, and the way from a text or a file to a net."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from pathlib import Path

import msgspec

from anabranch.dialects.nodes import Fields, Items, Scalar, kind_of
from anabranch.dialects.port import Compiled, Options, RegisteredTool, signatures
from anabranch.dialects.source import Document, SourceLimits, read_source, too_large
from anabranch.errors import InputError
from anabranch.net.analyse import analyse
from anabranch.net.net import Net
from anabranch.net.problems import Position, Problem, in_order
from anabranch.store_files import refuse_store_file


class Dialect(msgspec.Struct, frozen=True):
    """A dialect by the signs of its documents; it is imported when the first of them comes."""

    name: str
    recognises: Callable[[Fields], bool]
    #: The net, as far as it can be built, and everything wrong with the document.
    compile: Callable[[Document, Fields, Options], tuple[Net | None, Sequence[Problem]]]
    #: Codes of errors that have a meaning at run time: told, and no reason not to run.
    tolerates: frozenset[str] = frozenset()


def _is_playbook(root: Fields) -> bool:
    version, kind = root.get("apiVersion"), root.get("kind")
    if isinstance(version, Scalar) and str(version.value).startswith("noetl.io/"):
        return True
    return (isinstance(kind, Scalar) and kind.value == "Playbook") or "workflow" in root


def _is_orchestration(root: Fields) -> bool:
    if "structure" in root or "orchestration" in root:
        return True
    from anabranch.dialects.xrc729.multi_bundle import is_multi_bundle, is_rule

    return is_multi_bundle(root) or is_rule(root)


def _is_workflow(root: Fields) -> bool:
    plan, steps = root.get("plan"), root.get("steps")
    named = "workflow_id" in root or "definition_id" in root
    if isinstance(plan, Fields):
        return "steps" in plan or named
    return isinstance(steps, Items) or named


def _playbook(
    document: Document, root: Fields, options: Options
) -> tuple[Net | None, Sequence[Problem]]:
    from anabranch.dialects.noetl.playbook import Playbook

    return Playbook(document, root, options).compile()


def _orchestration(
    document: Document, root: Fields, _options: Options
) -> tuple[Net | None, Sequence[Problem]]:
    from anabranch.dialects.xrc729.compile import compile_orchestration

    return compile_orchestration(document, root)


def _workflow(
    document: Document, root: Fields, _options: Options
) -> tuple[Net | None, Sequence[Problem]]:
    from anabranch.dialects.arca.plan import Plans

    return Plans(document, root).compile()


def load_languages() -> None:
    """Load what the first definition of each language would load. A server does so before it has
    any, in a thread: the event loop would stand still meanwhile."""
    for name in (
        "dialects.noetl.playbook",
        "dialects.xrc729.compile",
        "dialects.arca.plan",
        "expressions.jinja.embedded",
        "expressions.jinja.program",
    ):
        import_module(f"anabranch.{name}")


#: Asked in this order; the first that recognises a document compiles it.
DIALECTS: tuple[Dialect, ...] = (
    Dialect("noetl", _is_playbook, _playbook),
    # A join that nobody can fill aborts its target when it opens, and the session goes on.
    Dialect("xrc729", _is_orchestration, _orchestration, frozenset({"join-impossible"})),
    Dialect("arca", _is_workflow, _workflow),
)


def compile_source(
    text: str | bytes,
    *,
    file: str = "<text>",
    tools: Iterable[RegisteredTool] = (),
    any_tool: bool = False,
    limits: SourceLimits | None = None,
) -> Compiled:
    """Read, recognise and compile a definition; everything wrong with it is in `problems`.

    `tools` are the callables registered as task kinds. With `any_tool` every unknown kind is taken
    for one, as for a definition that was checked elsewhere."""
    document = read_source(text, file=file, limits=limits)
    if document.root is None:
        return Compiled(None, in_order(document.problems), "")
    dialect = _recognised(document)
    if dialect is None or not isinstance(document.root, Fields):
        return Compiled(None, in_order([*document.problems, _unknown(document)]), "")
    net, found = dialect.compile(document, document.root, Options(signatures(tools), any_tool))
    problems = [*document.problems, *found]
    if net is not None:
        problems.extend(_worth_telling(analyse(net), problems))
    if any(_forbids(problem, dialect) for problem in problems):
        net = None
    return Compiled(net, in_order(problems), dialect.name)


def load(
    path: str | os.PathLike[str],
    *,
    tools: Iterable[RegisteredTool] = (),
    limits: SourceLimits | None = None,
) -> Compiled:
    """Compile a file. InputError when there is no such file or it cannot be read."""
    limits = limits or SourceLimits()
    data, size = _contents(path, limits.bytes_max + 1)
    if size > limits.bytes_max:
        return Compiled(None, (too_large(str(path), size, limits),), "")
    return compile_source(data, file=str(path), tools=tools, limits=limits)


def _contents(path: str | os.PathLike[str], most: int) -> tuple[bytes, int]:
    """The start of a file, and its size. A pipe has no size until it is read."""
    refuse_store_file(path)
    try:
        with Path(path).open("rb") as file:
            data = file.read(most)
            return data, max(len(data), os.fstat(file.fileno()).st_size)
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file", code="no_file") from None
    except IsADirectoryError:
        message = f"{path} is a directory; name the definition file in it"
        raise InputError(message, code="no_file") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{path} cannot be read: {reason}", code="no_file") from None


def _worth_telling(found: Iterable[Problem], known: Iterable[Problem]) -> Iterable[Problem]:
    """An arc to a misspelt step also leaves the right one unreached: once is enough."""
    misspelt = any(problem.code == "unknown-step" for problem in known)
    return [each for each in found if not (misspelt and each.code == "unreachable-step")]


def _forbids(problem: Problem, dialect: Dialect) -> bool:
    """Some errors have a meaning at run time: they are told, and do not keep a net from running."""
    return problem.severity == "error" and problem.code not in dialect.tolerates


def _recognised(document: Document) -> Dialect | None:
    root = document.root
    if not isinstance(root, Fields):
        return None
    return next((dialect for dialect in DIALECTS if dialect.recognises(root)), None)


def _unknown(document: Document) -> Problem:
    root = document.root
    at = root.position if root is not None else Position(1, 1, document.file)
    is_what = f": it is {kind_of(root)}" if root and not isinstance(root, Fields) else ""
    message = f"this is not a definition Anabranch knows{is_what}"
    kind = root.get("kind") if isinstance(root, Fields) else None
    if isinstance(kind, Scalar) and str(kind.value).startswith("xgr."):
        message = f"this is no definition but {kind.value}"
        return Problem(at, "unknown-dialect", message, "play it: anabranch test FILE")
    hint = "a playbook has `apiVersion: noetl.io/v2`, `kind: Playbook` and a `workflow` list"
    return Problem(at, "unknown-dialect", message, hint)
