"""The grammar of `store`: the file itself, as a whole."""

from __future__ import annotations

from anabranch.surfaces.cli.commands import common as c

LOCAL = (
    "works on the file of a store, on the machine that has it: name that with --store, and leave "
    "--server out"
)


def add_store(verbs: c.Verbs) -> None:
    actions = c.family(verbs, "store", "Back up, restore, check or compact the file of a store.")
    backup, restore, _check, compact = (
        c.action(actions, name, words, local=LOCAL)
        for name, words in (
            ("backup", "Copy a store while it is in use."),
            ("restore", "Put a backup in the place of a store that no engine owns."),
            ("check", "Read everything in a store and report what is damaged."),
            ("compact", "Rebuild a store that no engine owns, and give unused space back."),
        )
    )
    backup.add_argument("to", metavar="TO", help="the file to write")
    backup.add_argument("--force", action="store_true", help="replace a file that is there")
    restore.add_argument("source", metavar="FROM", help="a backup")
    for one in (restore, compact):
        c.options(one, "--actor")
