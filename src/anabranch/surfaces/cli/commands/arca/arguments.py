"""The grammar of `arca`: the module itself, and what is asked of it through its node."""

from __future__ import annotations

import argparse

from anabranch.surfaces.cli.commands import common as c

#: Those of `workflow-run-snapshot.v1`; a grammar loads no node.
STATUSES = (
    "active", "running", "paused", "completed", "failed", "cancelled", "deadline_exceeded",
    "step_timeout",
)  # fmt: skip
_FOLDER = "the folder of the node (default: $ANABRANCH_NODE or the current one)"
_FOREVER = 10**9


def add_arca(verbs: c.Verbs) -> None:
    text = "Run workflows on a node: start them, look at them, decide about them."
    actions = c.family(verbs, "arca", text)
    verbs.choices["arca"].add_argument("--node", metavar="DIR", help=_FOLDER)
    text = "Be the module Arca; a node launches it and says in its environment how."
    serve = actions.add_parser("serve", help=text, description=text, formatter_class=c.Formatter)
    serve.add_argument("--json", action="store_true", default=argparse.SUPPRESS)
    _run(actions)
    _runs(actions)
    for name, text in (
        ("show", "Show a run and its steps."),
        ("explain", "Show what a run waits for, and who can move it."),
        ("dispatches", "Show who was asked, and what came of it."),
    ):
        _of_run(actions, name, text)
    for name, text in (
        ("pause", "Begin nothing new in a run."),
        ("resume", "Let a run go on."),
        ("cancel", "End a run; what waits is given up."),
    ):
        _said(_of_run(actions, name, text))
    _confirm(actions)
    _templates(actions)


def action(actions: c.Verbs, name: str, text: str) -> argparse.ArgumentParser:
    parser = actions.add_parser(name, help=text, description=text, formatter_class=c.Formatter)
    places(parser)
    return parser


def places(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json", action="store_true", default=argparse.SUPPRESS, help="print JSON, not text"
    )
    parser.add_argument("--node", metavar="DIR", default=argparse.SUPPRESS, help=_FOLDER)


def wait(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--wait", nargs="?", type=c.positive, const=_FOREVER, metavar="SECONDS",
        help="until it has ended or stands still, at most so long",
    )  # fmt: skip


def _run(actions: c.Verbs) -> None:
    parser = action(actions, "run", "Start a run of a workflow definition.")
    parser.add_argument("definition", metavar="DEFINITION", help="a file, or - for standard input")
    said = "one value of the input; V is JSON if it can be, text otherwise; K may be dotted"
    c.pairs(parser, "--input", said)
    parser.add_argument("--input-file", metavar="F", help="the input as a JSON or YAML file")
    parser.add_argument("--run-id", metavar="ID", help="the same id again is the same run")
    wait(parser)


def _runs(actions: c.Verbs) -> None:
    parser = action(actions, "runs", "Show the runs, newest first.")
    parser.add_argument("--status", choices=STATUSES, help="only runs with this status")
    parser.add_argument("--workflow", metavar="ID", help="only runs of this workflow")
    text = "how many, at most 500 (default: 50)"
    parser.add_argument("--limit", type=c.positive, metavar="N", help=text)


def _of_run(actions: c.Verbs, name: str, text: str) -> argparse.ArgumentParser:
    parser = action(actions, name, text)
    text = "a run id, its first letters if they are unique, or `last` for the newest run"
    parser.add_argument("run", metavar="RUN", help=text)
    return parser


def _said(parser: argparse.ArgumentParser) -> None:
    c.options(parser, "--actor", "--reason")


def _confirm(actions: c.Verbs) -> None:
    parser = _of_run(actions, "confirm", "Say that the task of a step is fulfilled, or is not.")
    parser.add_argument("step", metavar="STEP")
    parser.add_argument("--reject", action="store_true", help="it is not fulfilled")
    parser.add_argument("--evidence", metavar="JSON", help="kept with the decision")
    _said(parser)


def _templates(actions: c.Verbs) -> None:
    parser = action(actions, "templates", "Show the templates of a node, keep, run and share them.")
    doing = parser.add_subparsers(dest="do", metavar="DO", title="what to do", required=False)
    _do(doing, "list", "Show the templates.")
    _do(doing, "put", "Keep a template.", "FILE")
    _do(doing, "show", "Show a template.", "TEMPLATE")
    _do(doing, "delete", "Delete a template.", "TEMPLATE")
    _parameters(_do(doing, "materialise", "Show what a template comes to.", "TEMPLATE"))
    run = _do(doing, "run", "Start a run of a template.", "TEMPLATE")
    _parameters(run)
    c.pairs(run, "--input", "one value of the input of the run")
    run.add_argument("--run-id", metavar="ID", help="the same id again is the same run")
    wait(run)
    publish = _do(doing, "publish", "Let other nodes read a template.", "TEMPLATE")
    publish.add_argument("--withdraw", action="store_true", help="let them read it no longer")
    _do(doing, "browse", "Show the templates that another node publishes.", "NODE_ID")
    text = "Show a template of another node, whose it is, and whether its signature holds."
    _do(doing, "preview", text, "NODE_ID", "TEMPLATE")
    text = "Show a template of another node, and keep it."
    imported = _do(doing, "import", text, "NODE_ID", "TEMPLATE")
    imported.add_argument("--digest", metavar="SHA256", help="keep exactly what was looked at")
    imported.add_argument("--publisher", metavar="ID", help="only if this participant signed it")


def _do(doing: c.Verbs, name: str, text: str, *positional: str) -> argparse.ArgumentParser:
    parser = doing.add_parser(name, help=text, description=text, formatter_class=c.Formatter)
    places(parser)
    for each in positional:
        parser.add_argument(each.lower(), metavar=each)
    return parser


def _parameters(parser: argparse.ArgumentParser) -> None:
    c.pairs(parser, "--param", "a parameter of the template; V is JSON if it can be")
