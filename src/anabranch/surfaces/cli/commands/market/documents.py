"""`market check` and `market kinds`: documents of the market, checked alone."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from anabranch import files
from anabranch.clock import SystemClock
from anabranch.errors import InputError
from anabranch.market.documents import KINDS, check_text, moment_of
from anabranch.market.documents.checking import CheckedDocument
from anabranch.market.documents.limits import TEXT_MAX
from anabranch.market.documents.problems import DocumentProblem
from anabranch.market.documents.shapes import Fields
from anabranch.net.problems import did_you_mean
from anabranch.settings import Settings
from anabranch.surfaces.cli.output import render


async def market(options: argparse.Namespace, settings: Settings) -> int:
    if options.kind is not None and options.kind not in KINDS:
        hint = did_you_mean(options.kind, KINDS) or "`anabranch market kinds` lists them"
        raise InputError(f"there is no kind {options.kind!r:.80}; {hint}", code="usage")
    if options.action == "check":
        return _check(options)
    if options.kind is None:
        return render.tell(options, {"kinds": sorted(KINDS)}, "\n".join(sorted(KINDS)))
    return _show(options, KINDS[options.kind])


def _show(options: argparse.Namespace, shape: Fields) -> int:
    """The fields of a kind, as they are checked."""
    fields = [
        {"field": name, "required": required, "takes": inner.words()}
        for required, part in ((True, shape.required), (False, shape.optional))
        for name, inner in part.items()
    ]
    rows = [
        (str(one["field"]), "required" if one["required"] else "", str(one["takes"]))
        for one in fields
    ]
    others = "no other fields" if shape.closed else "other fields may be there"
    facts = {"kind": options.kind, "closed": shape.closed, "fields": fields}
    text = "\n".join([*render.table(rows), others])
    return render.tell(options, facts, text)


def _check(options: argparse.Namespace) -> int:
    at = _instant(options.at)
    found = [
        (file, document)
        for file in options.files
        for document in _documents(file, at, options.kind, options.draft)
    ]
    wrong = sum(bool(document.problems) for _, document in found)
    if options.json:
        problems = [_fields(file, one) for file, document in found for one in document.problems]
        documents = [
            {
                "file": file,
                "path": document.path,
                "kind": document.kind,
                "ok": not document.problems,
            }
            for file, document in found
        ]
        print(render.json_line({"ok": not wrong, "documents": documents, "problems": problems}))
    else:
        _print(found, wrong)
    return 2 if wrong else 0


def _instant(text: str | None) -> int | None:
    if text == "now":
        return SystemClock().now()
    try:
        return moment_of(text)
    except InputError:
        message = f"--at {text!r:.60} is no time; write one such as 2026-06-10T08:00:00Z, or now"
        raise InputError(message, code="usage") from None


def _documents(
    file: str, at: int | None, kind: str | None, draft: bool
) -> Sequence[CheckedDocument]:
    """A file that cannot be read is one more problem: the others are looked at all the same."""
    try:
        data = _read(file)
    except InputError as error:
        return [CheckedDocument("", "", [DocumentProblem("", "no-file", error.message)])]
    return check_text(data, file, at=at, kind=kind, draft=draft)


def _read(file: str) -> bytes:
    if file == "-":
        return sys.stdin.buffer.read(TEXT_MAX + 1)  # what is longer is told
    return files.read_limited(file, TEXT_MAX)


def _fields(file: str, problem: DocumentProblem) -> dict[str, str]:
    return {
        "file": file,
        "path": problem.path,
        "code": problem.code,
        "message": problem.message,
    }


def _print(found: Sequence[tuple[str, CheckedDocument]], wrong: int) -> None:
    for file, document in found:
        for problem in document.problems:
            print(render.clean(f"{file}: {problem}"))
    count = f"{len(found)} document{'s' if len(found) != 1 else ''}"
    print(f"{count}: {f'{wrong} with problems' if wrong else 'no problems'}")
