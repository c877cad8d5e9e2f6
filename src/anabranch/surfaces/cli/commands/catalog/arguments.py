"""The grammar of `register` and `catalog`."""

from __future__ import annotations

from anabranch.surfaces.cli.commands import common as c


def add_register(verbs: c.Verbs) -> None:
    parser = c.verb(verbs, "register", "Keep definitions in the catalog, by their metadata.path.")
    parser.add_argument("files", nargs="+", metavar="FILE", help="`-` reads standard input")
    parser.add_argument(
        "--path", metavar="PATH", help="of one file: its path, instead of metadata.path"
    )
    c.options(parser, "--tools", "--actor")


def add_catalog(verbs: c.Verbs) -> None:
    actions = c.family(verbs, "catalog", "Look at the definitions that were registered.")
    listed = c.action(actions, "list", "List the paths, each in its newest version.")
    listed.add_argument("--prefix", default="", metavar="PATH", help="paths that start with this")
    show = c.action(actions, "show", "Print a definition.")
    show.add_argument("path", metavar="PATH[@N]", help="its path; @N for a version")
    versions = c.action(actions, "versions", "List the versions of a path, newest first.")
    versions.add_argument("path", metavar="PATH", help="its path")
