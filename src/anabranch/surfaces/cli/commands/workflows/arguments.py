"""The grammar of the verbs for Arca workflows: dispatches, snapshots, templates, passports."""

from __future__ import annotations

from typing import get_args

from anabranch.literals import DispatchStatus
from anabranch.surfaces.cli.commands import common as c


def add_dispatches(verbs: c.Verbs) -> None:
    text = "List which participants a run asked, and the outcome."
    parser = c.verb(verbs, "dispatches", text)
    c.run(parser)
    parser.add_argument("--step", metavar="STEP", help="only those of this step")
    parser.add_argument(
        "--status", choices=get_args(DispatchStatus), help="only those in this status"
    )


def add_snapshot(verbs: c.Verbs) -> None:
    text = "Print a run as a WorkflowRunSnapshot: steps, dispatches, tasks; no raw responses."
    c.run(c.verb(verbs, "snapshot", text))


def add_template(verbs: c.Verbs) -> None:
    text = "Store workflow templates, and run them with parameters."
    actions = c.family(verbs, "template", text)
    put = c.action(actions, "put", "Store a template; a changed text is a new version.")
    put.add_argument("file", metavar="FILE", help="`-` reads standard input")
    c.action(actions, "list", "List the templates, each in its newest version.")
    versions = c.action(actions, "versions", "List the versions of a template, oldest first.")
    show = c.action(actions, "show", "Print a template.")
    run = c.action(actions, "run", "Make a definition of a template, and run it.")
    delete = c.action(actions, "delete", "Let a template be found no more; runs of it stay.")
    for one in (versions, show, run, delete):
        one.add_argument("id", metavar="TEMPLATE", help="its template_id")
    for one in (show, run):
        one.add_argument(
            "--version", type=int, dest="kept", metavar="N", help="instead of the newest"
        )
    said = "a parameter of the template (repeatable); V is JSON if it can be, text otherwise"
    c.pairs(run, "--param", said)
    run.add_argument(
        "--dry-run",
        action="store_true",
        help="print the definition in its normal form, run nothing",
    )
    c.starting(run)


def add_participants(verbs: c.Verbs) -> None:
    text = "Show the participants and how they have answered; probe whether they are reachable."
    actions = c.family(verbs, "participants", text)
    words = "List them, at a server with how they have answered."
    listed = c.action(actions, "list", words, store=False)
    why = "looks from this machine: leave --server out"
    probe = c.action(
        actions, "probe", "Look whether each is there, without asking it.", store=False, local=why
    )
    c.action(actions, "reload", "Have a server read its book again.", store=False)
    for one in (listed, probe):
        one.add_argument("--participants", metavar="FILE", help="the book of participants")
    probe.add_argument(
        "--seconds", type=float, default=5.0, metavar="N", help="wait so long for each (5)"
    )


def add_passport(verbs: c.Verbs) -> None:
    text = "Make identities and capability passports, and look whether they hold."
    why = "works on files of this machine, and a secret key stays there: leave --server out"
    actions = c.family(verbs, "passport", text)
    new, issue, renew, revoke, verify = (
        c.action(actions, name, words, store=False, local=why)
        for name, words in (
            ("new", "Make a secret key; print its identities."),
            ("issue", "Sign a passport for a node."),
            ("renew", "Sign a passport again, for a time from now on."),
            ("revoke", "Sign a revocation of a passport, by its issuer or its node."),
            ("verify", "Say of each passport whether it holds."),
        )
    )
    new.add_argument("file", metavar="KEY", help="the file to write the secret key to")
    issue.add_argument("file", metavar="KEY", help="the file with the secret key to sign with")
    issue.add_argument("node", metavar="NODE", help="node:did:key:…")
    issue.add_argument("capability", metavar="CAPABILITY", help="what the node may do")
    issue.add_argument(
        "--account-namespace",
        action="append",
        metavar="NAME",
        help="accounts that a network-ledger may keep (repeatable); for no other capability",
    )
    for one in (renew, revoke):
        one.add_argument("file", metavar="KEY", help="the file with the secret key to sign with")
        one.add_argument("passport", metavar="FILE", help="a passport, or a directory of them")
        one.add_argument("--id", metavar="ID", help="which of several, by its passport_id")
    for one in (issue, renew):
        c.count(one, "--days", 30, "valid so long")
    verify.add_argument("file", metavar="FILE", help="a passport, or a directory of them")
