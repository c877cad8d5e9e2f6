"""The grammar of the verbs that only look: `check`, `fmt`, `graph`, `runs`, `show` and others."""

from __future__ import annotations

from typing import get_args

from anabranch.literals import ItemState, RunStatus
from anabranch.operations.logs.log_lines import LEVELS
from anabranch.operations.overview.windows import DEFAULT_WINDOW, WINDOWS
from anabranch.surfaces.cli.commands import common as c


def add_check(verbs: c.Verbs) -> None:
    parser = c.verb(verbs, "check", "Report every problem of a definition.", store=False)
    parser.add_argument("files", nargs="*", metavar="FILE", help="`-` reads standard input")
    parser.add_argument(
        "--participants",
        metavar="BOOK",
        help="check this book of participants, by itself or with the definitions",
    )
    parser.add_argument("--strict", action="store_true", help="warnings count as errors")
    c.options(parser, "--rules")
    c.registry(parser, "only this one of the registry")
    c.options(parser, "--tools", "--pool", "--catalog")


def add_registry(verbs: c.Verbs) -> None:
    text = "List the orchestrations that a registry contract keeps."
    why = "asks the chain from here: leave --server out"
    parser = c.verb(verbs, "registry", text, store=False, local=why)
    parser.add_argument("registry", metavar="0x…", help="the address of the contract")
    c.options(parser, "--rpc")


def add_fmt(verbs: c.Verbs) -> None:
    text = "Rewrite a playbook in the canonical spelling (v10)."
    parser = c.verb(verbs, "fmt", text, store=False)
    parser.add_argument("files", nargs="+", metavar="FILE", help="a playbook")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if it would")
    parser.add_argument("--stdout", action="store_true", help="print instead of writing the file")


def add_graph(verbs: c.Verbs) -> None:
    parser = c.verb(verbs, "graph", "Draw a definition, or a run with its statuses.")
    parser.add_argument("what", nargs="?", metavar="FILE|RUN", help="a file, or a run id or `last`")
    parser.add_argument(
        "--format", choices=("mermaid", "svg", "dot"), default="mermaid", help="(mermaid)"
    )
    parser.add_argument("--output", "-o", metavar="F", help="write to a file")
    c.options(parser, "--rules")
    c.registry(parser, "this one of the file or the registry")
    c.options(parser, "--tools")


def add_runs(verbs: c.Verbs) -> None:
    parser = c.verb(verbs, "runs", "List runs, newest first.")
    parser.add_argument(
        "--status",
        action="append",
        default=[],
        choices=get_args(RunStatus),
        metavar="S",
        help=f"only these (repeatable): {', '.join(get_args(RunStatus))}",
    )
    parser.add_argument("--name", help="only runs of the definition with this name")
    c.search(parser)
    c.labels(parser, "only runs with this label (repeatable)")
    said = "only runs that another redrives (yes), or only those that none does (no)"
    parser.add_argument("--redriven", choices=("yes", "no"), help=said)
    c.count(parser, "--limit", 20, "at most so many")


def add_overview(verbs: c.Verbs) -> None:
    text = "Show runs over time and by definition, what waits longest, and pools."
    parser = c.verb(verbs, "overview", text)
    parser.add_argument(
        "--window", choices=tuple(WINDOWS), default=DEFAULT_WINDOW, help=f"({DEFAULT_WINDOW})"
    )


def add_show(verbs: c.Verbs) -> None:
    parser = c.verb(verbs, "show", "Show a run: status, steps, joins, result; or items of a loop.")
    c.run(parser)
    items = parser.add_argument_group("items of a loop")
    items.add_argument("--items", metavar="STEP", help="list the items of the loop at this step")
    items.add_argument("--state", choices=get_args(ItemState), help="only items in this state")
    items.add_argument("--error", metavar="KIND", help="only items that failed in this way")
    c.count(items, "--limit", 50, "a page")
    items.add_argument(
        "--after", type=c.natural, default=None, metavar="INDEX", help="only after this item"
    )


def add_events(verbs: c.Verbs) -> None:
    parser = c.verb(verbs, "events", "List what was recorded.")
    c.run(parser)
    parser.add_argument("--follow", action="store_true", help="go on until the run has finished")
    parser.add_argument(
        "--after", type=c.natural, default=0, metavar="N", help="only after this number"
    )
    parser.add_argument(
        "--tasks", action="store_true", help="also what each task did, item by item in loops"
    )


def add_logs(verbs: c.Verbs) -> None:
    parser = c.verb(verbs, "logs", "Show what work printed.")
    c.run(parser)
    parser.add_argument("step", nargs="?", metavar="STEP", help="only what this step printed")
    parser.add_argument(
        "--attempt",
        type=c.natural,
        default=None,
        metavar="N",
        help="only attempts with this number",
    )
    parser.add_argument(
        "--level", choices=LEVELS, metavar="L", help=f"only this or higher: {', '.join(LEVELS)}"
    )
    parser.add_argument("--search", default="", metavar="TEXT", help="only lines with this in them")
    parser.add_argument("--follow", action="store_true", help="go on until the run has finished")


def add_get(verbs: c.Verbs) -> None:
    parser = c.verb(verbs, "get", "Print what a reference leads to, as JSON.")
    parser.add_argument(
        "ref", metavar="REF", help="of a step, a loop or a payload: anabranch:run:… or :sha256:…"
    )
    c.count(parser, "--offset", 0, "of a loop: start with item N")
    c.count(parser, "--limit", 1000, "of a loop: a page")


def add_limits(verbs: c.Verbs) -> None:
    text = "List the limits across runs: who holds a place, and who waits for one."
    parser = c.verb(verbs, "limits", text)
    parser.add_argument("key", nargs="?", metavar="KEY", help="list the runs under this key")


def add_explain(verbs: c.Verbs) -> None:
    text = "Explain what a run waits for, since when, until when, and who can move it."
    c.run(c.verb(verbs, "explain", text))
