"""The grammar of `cluster`; without an action it shows the servers."""

from __future__ import annotations

import argparse

from anabranch.surfaces.cli.commands import common as c


def add_cluster(verbs: c.Verbs) -> None:
    parser = c.verb(verbs, "cluster", "Show the servers that share a store, or drain one.")
    actions = parser.add_subparsers(
        dest="action", metavar="ACTION", title="actions", required=False
    )
    _action(actions, "servers", "Show the servers and what they own; also without an action.")
    _action(actions, "partitions", "Show every partition: its owner, its epoch, what waits.")
    c.run(_action(actions, "owner", "Show which server owns a run."))
    drain = _action(actions, "drain", "Let a server hand over all it owns, so that it can stop.")
    drain.add_argument("name", metavar="SERVER", help="its id, the first letters, name or URL")
    drain.add_argument("--undo", action="store_true", help="let it take its share again")
    drain.add_argument(
        "--no-wait", action="store_true", help="do not wait until the server owns nothing"
    )
    c.options(drain, "--actor")


def _action(actions: c.Verbs, name: str, text: str) -> argparse.ArgumentParser:
    """Like the verb itself; what stands before the action counts, too."""
    return c.action(actions, name, text, default=argparse.SUPPRESS)
