"""The command line: every verb in the order of the help. What each takes is in `grammar`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from anabranch.surfaces.cli.grammar import (
    catalog,
    credentials,
    epilogs,
    keeping,
    looking,
    running,
    saying,
    serving,
    sessions,
    stores,
    webhooks,
    workflows,
)
from anabranch.surfaces.cli.grammar.common import Formatter, Parser

_VERBS: tuple[Callable[[Any], None], ...] = (
    running.add_run,
    looking.add_check,
    looking.add_registry,
    looking.add_fmt,
    catalog.add_register,
    catalog.add_catalog,
    looking.add_graph,
    looking.add_runs,
    looking.add_show,
    looking.add_events,
    looking.add_explain,
    looking.add_get,
    running.add_resume,
    saying.add_pause,
    saying.add_cancel,
    saying.add_patch,
    saying.add_loop,
    saying.add_decide,
    running.add_redrive,
    keeping.add_purge,
    keeping.add_bulk,
    sessions.add_session,
    workflows.add_dispatches,
    workflows.add_snapshot,
    workflows.add_template,
    workflows.add_participants,
    workflows.add_passport,
    serving.add_serve,
    serving.add_dev,
    serving.add_token,
    credentials.add_credential,
    stores.add_store,
    webhooks.add_webhook,
    serving.add_worker,
    running.add_simulate,
    running.add_test,
    running.add_demo,
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
