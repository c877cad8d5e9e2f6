"""The command line: every verb in the order of the help. Its arguments stand beside it."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from anabranch.surfaces.cli.commands import epilogs
from anabranch.surfaces.cli.commands.bulk import arguments as bulk
from anabranch.surfaces.cli.commands.catalog import arguments as catalog
from anabranch.surfaces.cli.commands.common import Formatter, Parser
from anabranch.surfaces.cli.commands.control import arguments as control
from anabranch.surfaces.cli.commands.credentials import arguments as credentials
from anabranch.surfaces.cli.commands.inspect import arguments as inspect
from anabranch.surfaces.cli.commands.run import arguments as run
from anabranch.surfaces.cli.commands.serve import arguments as serve
from anabranch.surfaces.cli.commands.sessions import arguments as sessions
from anabranch.surfaces.cli.commands.stores import arguments as stores
from anabranch.surfaces.cli.commands.webhooks import arguments as webhooks
from anabranch.surfaces.cli.commands.workflows import arguments as workflows

_VERBS: tuple[Callable[[Any], None], ...] = (
    run.add_run,
    inspect.add_check,
    inspect.add_registry,
    inspect.add_fmt,
    catalog.add_register,
    catalog.add_catalog,
    inspect.add_graph,
    inspect.add_runs,
    inspect.add_show,
    inspect.add_events,
    inspect.add_explain,
    inspect.add_get,
    run.add_resume,
    control.add_pause,
    control.add_cancel,
    control.add_patch,
    control.add_loop,
    control.add_decide,
    run.add_redrive,
    bulk.add_purge,
    bulk.add_bulk,
    sessions.add_session,
    workflows.add_dispatches,
    workflows.add_snapshot,
    workflows.add_template,
    workflows.add_participants,
    workflows.add_passport,
    serve.add_serve,
    serve.add_dev,
    serve.add_token,
    credentials.add_credential,
    stores.add_store,
    webhooks.add_webhook,
    serve.add_worker,
    run.add_simulate,
    run.add_test,
    run.add_demo,
)


def build() -> argparse.ArgumentParser:
    parser = Parser(
        prog="anabranch",
        description="Ask many parties at once, go on with the answers you need, in time, durably.",
        epilog=epilogs.of_all(),
        formatter_class=Formatter,
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", title="verbs")
    for add in _VERBS:
        add(verbs)
    return parser
