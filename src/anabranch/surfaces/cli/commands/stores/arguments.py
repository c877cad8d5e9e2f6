"""The grammar of `store`: a store itself, as a whole."""

from __future__ import annotations

import argparse

from anabranch.surfaces.cli.commands import common as c

LOCAL = (
    "works on a store itself, on the machine that has it: name that with --store, and leave "
    "--server out"
)


def add_store(verbs: c.Verbs) -> None:
    text = "Copy, check or migrate a store; back up, restore or compact the file of one."
    actions = c.family(verbs, "store", text)
    backup, restore, _check, compact, migrate = (
        c.action(actions, name, words, local=LOCAL)
        for name, words in (
            ("backup", "Copy a store while it is in use."),
            ("restore", "Put a backup in the place of a store that no engine owns."),
            ("check", "Read everything in a store and report what is damaged."),
            ("compact", "Rebuild a store that no engine owns, and give unused space back."),
            ("migrate", "Bring the schema of a store up to date; on PostgreSQL make it, too."),
        )
    )
    copy = _add_copy(actions)
    backup.add_argument("to", metavar="TO", help="the file to write")
    backup.add_argument("--force", action="store_true", help="replace a file that is there")
    restore.add_argument("source", metavar="FROM", help="a backup")
    for one in (restore, compact, copy, migrate):
        c.options(one, "--actor")


def add_export(verbs: c.Verbs) -> None:
    text = "Write runs that have ended to a file, with their definitions and payloads."
    parser = c.verb(verbs, "export", text, local=LOCAL)
    c.run(parser, nargs="+")
    parser.add_argument("--file", metavar="F", help="write this file (default: standard output)")


def add_import(verbs: c.Verbs) -> None:
    text = "Take the runs of an exported file into a store that no engine owns."
    parser = c.verb(verbs, "import", text, local=LOCAL)
    parser.add_argument("file", metavar="FILE", help="what `anabranch export` wrote")
    parser.add_argument("--dry-run", action="store_true", help="only check the file")
    c.options(parser, "--actor")


def _add_copy(actions: c.Verbs) -> argparse.ArgumentParser:
    text = "Copy all of a store that no engine uses to another one, of the same kind or not."
    copy = c.action(actions, "copy", text, store=False, local=LOCAL)
    copy.add_argument("source", metavar="FROM", help="a SQLite file, or postgresql://…")
    copy.add_argument("to", metavar="TO", help="likewise; it is empty, or not there yet")
    copy.add_argument(
        "--partitions",
        type=c.positive,
        metavar="N",
        help="of a new store on PostgreSQL (setting store_partitions)",
    )
    return copy
