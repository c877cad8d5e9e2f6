"""The grammar of the command line: every verb, its arguments and its help."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, get_args

from anabranch import settings as config
from anabranch.kernel.values import RunStatus
from anabranch.operations.items import ItemState
from anabranch.surfaces.cli.bulk_parser import add_options
from anabranch.surfaces.cli.server_parser import add_browser, add_serving, add_token_actions
from anabranch.surfaces.cli.session_parser import add_actions

EXIT_CODES = """\
exit codes:
  0    completed
  1    failed (also cancelled, deadline_exceeded, step_timeout)
  2    bad usage or definition; nothing was changed
  3    partial
  4    left waiting or paused (run id and reason on standard error)
  130  interrupted; the run can be resumed
"""


class _Formatter(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28, width=96)


def build() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="anabranch",
        description="Ask many parties at once, go on with the answers you need, in time, durably.",
        epilog=EXIT_CODES,
        formatter_class=_Formatter,
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", title="verbs")
    for add in _VERBS:
        add(verbs)
    return parser


if TYPE_CHECKING:
    _Verbs: TypeAlias = argparse._SubParsersAction[argparse.ArgumentParser]


def _verb(
    verbs: _Verbs, name: str, text: str, *, store: bool = True, server: bool = True
) -> argparse.ArgumentParser:
    parser = verbs.add_parser(
        name, help=text, description=text, epilog=EXIT_CODES, formatter_class=_Formatter
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    if store:
        parser.add_argument(
            "--store",
            metavar="PATH",
            help=f"the SQLite file (default: $ANABRANCH_STORE or {config.Settings().store})",
        )
    if server:
        _server(parser)
    return parser


def _server(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--server", metavar="URL", help="ask this server instead (or $ANABRANCH_SERVER)"
    )
    parser.add_argument(
        "--token-file", metavar="F", help="the file with the token for it (or $ANABRANCH_TOKEN)"
    )


def _run_argument(parser: argparse.ArgumentParser, **more: Any) -> None:
    parser.add_argument("run", metavar="RUN", help="a run id, its first letters, or `last`", **more)


def _natural(text: str) -> int:
    number = int(text)
    if number < 0:
        raise ValueError
    return number


_natural.__name__ = "number"  # as argparse calls it when it complains


def _actor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--actor", default="", metavar="NAME", help="who does this, for the record")


def _watching(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--watch",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="show a live view (default: when standard error is a terminal)",
    )
    parser.add_argument(
        "--grace",
        type=float,
        metavar="SECONDS",
        help="how long an interrupted engine waits for running jobs",
    )


def _rules(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--rules",
        metavar="DIR|BUNDLE",
        help="the rules of an orchestration: a folder of <alias or address>.json, or a bundle",
    )


def _from_chain(parser: argparse.ArgumentParser) -> None:
    chain = parser.add_argument_group("orchestrations")
    _rules(chain)  # type: ignore[arg-type]
    chain.add_argument("--registry", metavar="0x…", help="load it from this contract")
    chain.add_argument("--ostc", metavar="ID", help="under this id")
    chain.add_argument("--rpc", metavar="URL", help="a JSON-RPC node (setting chain_url)")
    chain.add_argument("--hash", metavar="0x…", help="refuse any other text than this one")
    chain.add_argument(
        "--pin-rules", action="store_true", help="keep the rules as they are now for this session"
    )
    chain.add_argument("--owner", metavar="0x…", default="", help="whose session it is")
    chain.add_argument(
        "--max-gas", type=_natural, default=0, metavar="N", help="the gas of the whole session"
    )


def _add_run(verbs: _Verbs) -> None:
    parser = _verb(verbs, "run", "Run a definition to its end.")
    parser.add_argument(
        "file",
        nargs="?",
        metavar="FILE",
        help="a definition; `-` reads standard input",
    )
    _starting(parser)
    _from_chain(parser)


def _participants(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--participants", metavar="FILE", help="who can be asked, and how (YAML or JSON)"
    )


def _starting(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="K=V",
        help="one value of the input; V is JSON if it can be, text otherwise; K may be dotted",
    )
    parser.add_argument("--input-file", metavar="F", help="the input as a JSON or YAML file")
    parser.add_argument("--start", metavar="STEP", help="start at this step instead of the entry")
    parser.add_argument(
        "--label", action="append", default=[], metavar="K=V", help="label the run, for lists"
    )
    parser.add_argument("--run-id", metavar="ID", help="use this id; refused if it exists")
    parser.add_argument(
        "--tools", action="append", default=[], metavar="MODULE", help="import tools from a module"
    )
    _participants(parser)
    _watching(parser)


def _add_check(verbs: _Verbs) -> None:
    parser = _verb(verbs, "check", "Report every problem of a definition.", store=False)
    parser.add_argument("files", nargs="+", metavar="FILE", help="`-` reads standard input")
    parser.add_argument("--strict", action="store_true", help="warnings count as errors")
    _rules(parser)
    parser.add_argument(
        "--tools", action="append", default=[], metavar="MODULE", help="import tools from a module"
    )


def _add_fmt(verbs: _Verbs) -> None:
    text = "Rewrite a playbook in the canonical spelling (v10)."
    parser = _verb(verbs, "fmt", text, store=False, server=False)
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if it would")
    parser.add_argument("--stdout", action="store_true", help="print instead of writing the file")


def _add_graph(verbs: _Verbs) -> None:
    parser = _verb(verbs, "graph", "Draw a definition, or a run with its statuses.")
    parser.add_argument("what", metavar="FILE|RUN", help="a file, or a run id or `last`")
    parser.add_argument("--format", choices=("mermaid", "svg", "dot"), default="mermaid")
    parser.add_argument("--output", "-o", metavar="F", help="write to a file")
    _rules(parser)
    parser.add_argument(
        "--tools", action="append", default=[], metavar="MODULE", help="import tools from a module"
    )


def _add_runs(verbs: _Verbs) -> None:
    parser = _verb(verbs, "runs", "List runs, newest first.")
    parser.add_argument(
        "--status",
        action="append",
        default=[],
        choices=get_args(RunStatus),
        metavar="S",
        help=f"only these (repeatable): {', '.join(get_args(RunStatus))}",
    )
    parser.add_argument("--name", help="only runs of the definition with this name")
    parser.add_argument("--label", action="append", default=[], metavar="K=V")
    parser.add_argument(
        "--limit", type=_natural, default=20, metavar="N", help="at most so many (20)"
    )


def _add_show(verbs: _Verbs) -> None:
    parser = _verb(verbs, "show", "Show a run: status, steps, joins, result; or items of a loop.")
    _run_argument(parser)
    items = parser.add_argument_group("items of a loop")
    items.add_argument("--items", metavar="STEP", help="list the items of the loop at this step")
    items.add_argument("--state", choices=get_args(ItemState), help="only items in this state")
    items.add_argument("--error", metavar="KIND", help="only items that failed in this way")
    items.add_argument("--limit", type=_natural, default=50, metavar="N", help="a page (50)")
    items.add_argument(
        "--after", type=_natural, default=None, metavar="INDEX", help="only after this item"
    )


def _add_events(verbs: _Verbs) -> None:
    parser = _verb(verbs, "events", "List what was recorded.")
    _run_argument(parser)
    parser.add_argument("--follow", action="store_true", help="go on until the run has finished")
    parser.add_argument(
        "--after", type=_natural, default=0, metavar="N", help="only after this number"
    )


def _add_explain(verbs: _Verbs) -> None:
    text = "Say what a run waits for, since when, until when, and who can move it."
    _run_argument(_verb(verbs, "explain", text))


def _add_resume(verbs: _Verbs) -> None:
    parser = _verb(verbs, "resume", "Go on with a run (or all) after a stop, a crash or a pause.")
    _run_argument(parser, nargs="?")
    parser.add_argument("--rpc", metavar="URL", help="a JSON-RPC node (setting chain_url)")
    parser.add_argument(
        "--tools", action="append", default=[], metavar="MODULE", help="import tools from a module"
    )
    _actor(parser)
    _participants(parser)
    _watching(parser)


def _add_redrive(verbs: _Verbs) -> None:
    text = "Start a linked run that reuses what succeeded and re-runs only what failed."
    parser = _verb(verbs, "redrive", text)
    _run_argument(parser)
    parser.add_argument(
        "--tools", action="append", default=[], metavar="MODULE", help="import tools from a module"
    )
    _participants(parser)
    _watching(parser)


def _add_pause(verbs: _Verbs) -> None:
    parser = _verb(verbs, "pause", "Hold a run: what runs goes on, nothing new is started.")
    _run_argument(parser)
    parser.add_argument("--reason", default="", metavar="TEXT")
    _actor(parser)


def _add_cancel(verbs: _Verbs) -> None:
    parser = _verb(verbs, "cancel", "End a run: what waits ends now, what runs is stopped.")
    _run_argument(parser)
    parser.add_argument("--reason", default="", metavar="TEXT")
    _actor(parser)


def _add_patch(verbs: _Verbs) -> None:
    parser = _verb(verbs, "patch", "Write to the context of a run; held tokens look again.")
    _run_argument(parser)
    parser.add_argument("values", nargs="+", metavar="K=V")
    parser.add_argument(
        "--reduce",
        choices=("set", "sum", "min", "max", "append", "merge"),
        default="set",
        help="how to combine with what is there",
    )
    _actor(parser)


def _add_loop(verbs: _Verbs) -> None:
    parser = _verb(verbs, "loop", "Change a loop that is under way: its window, or stop it.")
    _run_argument(parser)
    parser.add_argument("step", metavar="STEP", help="the loop's step, or its id")
    change = parser.add_mutually_exclusive_group(required=True)
    change.add_argument(
        "--window", type=_natural, metavar="N", help="shards at work at once from now on"
    )
    change.add_argument("--stop", action="store_true", help="begin nothing more")
    parser.add_argument("--reason", default="", metavar="TEXT")
    _actor(parser)


def _add_decide(verbs: _Verbs) -> None:
    parser = _verb(verbs, "decide", "Answer an open gate.")
    _run_argument(parser)
    parser.add_argument("gate", metavar="GATE", help="the gate's id, or its step")
    verdict = parser.add_mutually_exclusive_group(required=True)
    verdict.add_argument("--fulfil", action="store_const", const="fulfil", dest="verdict")
    verdict.add_argument("--reject", action="store_const", const="reject", dest="verdict")
    parser.add_argument("--evidence", metavar="JSON", help="kept with the decision")
    parser.add_argument("--reason", default="", metavar="TEXT")
    _actor(parser)


def _add_purge(verbs: _Verbs) -> None:
    text = "Delete runs that ended long ago, with their payloads."
    parser = _verb(verbs, "purge", text, server=False)
    parser.add_argument(
        "--older-than", default="30d", metavar="AGE", help="such as 12h, 30d (the default) or 4w"
    )
    parser.add_argument("--dry-run", action="store_true", help="count, and delete nothing")


def _add_bulk(verbs: _Verbs) -> None:
    add_options(_verb(verbs, "bulk", "Do one thing with all runs that a filter finds."))


def _add_session(verbs: _Verbs) -> None:
    text = "Look at the sessions of orchestrations, wake or kill them."
    add_actions(_verb(verbs, "session", text, store=False, server=False))


def _add_dispatches(verbs: _Verbs) -> None:
    text = "List what a run asked of whom, and what became of it."
    parser = _verb(verbs, "dispatches", text)
    _run_argument(parser)
    parser.add_argument("--step", metavar="STEP", help="only those of this step")


def _add_snapshot(verbs: _Verbs) -> None:
    text = "Print a run as a WorkflowRunSnapshot: steps, dispatches, tasks; no raw responses."
    _run_argument(_verb(verbs, "snapshot", text))


def _add_template(verbs: _Verbs) -> None:
    parser = verbs.add_parser(
        "template",
        help="Keep workflow templates, and run them with parameters.",
        description="Keep workflow templates, and run them with parameters.",
        epilog=EXIT_CODES,
        formatter_class=_Formatter,
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    put = _verb(actions, "put", "Keep a template; a changed text is a new version.")
    put.add_argument("file", metavar="FILE")
    _verb(actions, "list", "List the templates, each in its newest version.")
    show = _verb(actions, "show", "Print a template.")
    run = _verb(actions, "run", "Make a definition of a template, and run it.")
    for one in (show, run):
        one.add_argument("id", metavar="TEMPLATE")
        one.add_argument(
            "--version", type=int, dest="kept", metavar="N", help="instead of the newest"
        )
    run.add_argument("--param", action="append", default=[], metavar="K=V")
    run.add_argument("--dry-run", action="store_true", help="print the definition, run nothing")
    _starting(run)


def _add_passport(verbs: _Verbs) -> None:
    text = "Make identities and capability passports, and look whether they hold."
    parser = verbs.add_parser("passport", help=text, description=text, epilog=EXIT_CODES,
                              formatter_class=_Formatter)  # fmt: skip
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    new = _verb(actions, "new", "Make a secret key; print its identities.", store=False)
    issue = _verb(actions, "issue", "Sign a passport for a node.", store=False)
    verify = _verb(actions, "verify", "Say of each passport whether it holds.", store=False)
    new.add_argument("file", metavar="KEY")
    issue.add_argument("file", metavar="KEY")
    issue.add_argument("node", metavar="NODE", help="node:did:key:…")
    issue.add_argument("capability", metavar="CAPABILITY")
    issue.add_argument("--days", type=_natural, default=30, metavar="N", help="valid so long (30)")
    verify.add_argument("file", metavar="FILE", help="a passport, or a directory of them")


def _add_simulate(verbs: _Verbs) -> None:
    text = "Run a definition in virtual time under random schedules and faults."
    parser = _verb(verbs, "simulate", text, store=False, server=False)
    parser.add_argument("file", metavar="FILE")
    parser.add_argument("--seeds", type=_natural, default=100, metavar="N", help="how many (100)")
    parser.add_argument("--seed", type=int, metavar="S", help="only this one, to repeat a failure")
    _rules(parser)
    parser.add_argument("--input", action="append", default=[], metavar="K=V")
    parser.add_argument(
        "--tools", action="append", default=[], metavar="MODULE", help="import tools from a module"
    )


def _add_worker(verbs: _Verbs) -> None:
    text = "Do the jobs of a pool for a server, from this machine."
    parser = _verb(verbs, "worker", text, store=False, server=False)
    parser.add_argument("--server", metavar="URL", help="the server (or $ANABRANCH_SERVER)")
    parser.add_argument(
        "--token-file", metavar="F", help="the file with the token for it (or $ANABRANCH_TOKEN)"
    )
    parser.add_argument("--pool", required=True, metavar="NAME", help="whose jobs to do")
    parser.add_argument(
        "--concurrency", type=_positive, default=1, metavar="N", help="jobs at once (1)"
    )
    parser.add_argument(
        "--tools", action="append", default=[], metavar="MODULE", help="import tools from a module"
    )
    parser.add_argument("--once", action="store_true", help="end when nothing waits any more")
    parser.add_argument("--name", metavar="NAME", help="as which it is known (host and process)")
    parser.add_argument(
        "--lease", type=float, metavar="SECONDS", help="of every job, instead of the definition's"
    )
    parser.add_argument(
        "--grace", type=float, metavar="SECONDS", help="how long an orderly stop waits for jobs"
    )


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


_positive.__name__ = "number"


def _add_demo(verbs: _Verbs) -> None:
    parser = _verb(verbs, "demo", "A showcase: fan-out, join, timeout, retry, kill and resume.",
                   store=False, server=False)  # fmt: skip
    parser.add_argument("--fast", action="store_true", help="do not pause for reading")


def _add_serve(verbs: _Verbs) -> None:
    text = "Serve the engine, the HTTP API and the web pages from this process."
    add_serving(_verb(verbs, "serve", text, server=False))


def _add_dev(verbs: _Verbs) -> None:
    text = "Serve with an example run loaded, and open the pages in a browser."
    parser = _verb(verbs, "dev", text, server=False)
    add_serving(parser)
    add_browser(parser)


def _add_token(verbs: _Verbs) -> None:
    text = "Make, list and revoke the tokens that a server asks for."
    add_token_actions(_verb(verbs, "token", text, store=False, server=False))


_VERBS: tuple[Callable[[Any], None], ...] = (
    _add_run,
    _add_check,
    _add_fmt,
    _add_graph,
    _add_runs,
    _add_show,
    _add_events,
    _add_explain,
    _add_resume,
    _add_pause,
    _add_cancel,
    _add_patch,
    _add_loop,
    _add_decide,
    _add_redrive,
    _add_purge,
    _add_bulk,
    _add_session,
    _add_dispatches,
    _add_snapshot,
    _add_template,
    _add_passport,
    _add_serve,
    _add_dev,
    _add_token,
    _add_simulate,
    _add_worker,
    _add_demo,
)
