"""The command line: every verb in the order of the help. Its arguments stand beside it."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from anabranch.surfaces.cli.commands import epilogs
from anabranch.surfaces.cli.commands.arca import arguments as arca
from anabranch.surfaces.cli.commands.bulk import arguments as bulk
from anabranch.surfaces.cli.commands.catalog import arguments as catalog
from anabranch.surfaces.cli.commands.cluster import arguments as cluster
from anabranch.surfaces.cli.commands.common import Formatter, Parser
from anabranch.surfaces.cli.commands.control import arguments as control
from anabranch.surfaces.cli.commands.credentials import arguments as credentials
from anabranch.surfaces.cli.commands.dator import arguments as dator
from anabranch.surfaces.cli.commands.inspect import arguments as inspect
from anabranch.surfaces.cli.commands.market import arguments as market
from anabranch.surfaces.cli.commands.node import arguments as node
from anabranch.surfaces.cli.commands.offers import arguments as offers
from anabranch.surfaces.cli.commands.run import arguments as run
from anabranch.surfaces.cli.commands.serve import arguments as serve
from anabranch.surfaces.cli.commands.sessions import arguments as sessions
from anabranch.surfaces.cli.commands.stores import arguments as stores
from anabranch.surfaces.cli.commands.stories import arguments as stories
from anabranch.surfaces.cli.commands.webhooks import arguments as webhooks
from anabranch.surfaces.cli.commands.workflows import arguments as workflows

#: Each verb in the order of the help: what adds its arguments, and the function below this package
#: that does it. A command loads only what it needs.
VERBS: dict[str, tuple[Callable[[Any], None], str]] = {
    "run": (run.add_run, "commands.run.run.run"),
    "check": (inspect.add_check, "commands.inspect.inspect.check"),
    "registry": (inspect.add_registry, "commands.inspect.registries.registry"),
    "fmt": (inspect.add_fmt, "commands.inspect.inspect.fmt"),
    "register": (catalog.add_register, "commands.catalog.catalog.register"),
    "catalog": (catalog.add_catalog, "commands.catalog.catalog.catalog"),
    "graph": (inspect.add_graph, "commands.inspect.inspect.graph"),
    "runs": (inspect.add_runs, "commands.inspect.inspect.runs"),
    "show": (inspect.add_show, "commands.inspect.inspect.show"),
    "events": (inspect.add_events, "commands.inspect.inspect.events"),
    "explain": (inspect.add_explain, "commands.inspect.inspect.explain"),
    "get": (inspect.add_get, "commands.inspect.inspect.get"),
    "resume": (run.add_resume, "commands.run.run.resume"),
    "pause": (control.add_pause, "commands.control.control.pause"),
    "cancel": (control.add_cancel, "commands.control.control.cancel"),
    "patch": (control.add_patch, "commands.control.control.patch"),
    "loop": (control.add_loop, "commands.control.control.loop"),
    "decide": (control.add_decide, "commands.control.control.decide"),
    "redrive": (run.add_redrive, "commands.run.run.redrive"),
    "purge": (bulk.add_purge, "commands.bulk.purge.purge"),
    "bulk": (bulk.add_bulk, "commands.bulk.bulk.bulk"),
    "session": (sessions.add_session, "commands.sessions.sessions.session"),
    "dispatches": (workflows.add_dispatches, "commands.workflows.workflows.dispatches"),
    "snapshot": (workflows.add_snapshot, "commands.workflows.workflows.snapshot"),
    "template": (workflows.add_template, "commands.workflows.workflows.template"),
    "participants": (workflows.add_participants, "commands.workflows.participants.participants"),
    "passport": (workflows.add_passport, "commands.workflows.passports.passport"),
    "market": (market.add_market, "commands.market.documents.market"),
    "serve": (serve.add_serve, "commands.serve.serve.serve"),
    "dev": (serve.add_dev, "commands.serve.serve.dev"),
    "token": (serve.add_token, "commands.serve.tokens.token"),
    "credential": (credentials.add_credential, "commands.credentials.credentials.credential"),
    "cluster": (cluster.add_cluster, "commands.cluster.cluster.cluster"),
    "node": (node.add_node, "commands.node.node.node"),
    "dator": (dator.add_dator, "commands.dator.dator.dator"),
    "arca": (arca.add_arca, "commands.arca.arca.arca"),
    "offers": (offers.add_offers, "commands.offers.offers.offers"),
    "store": (stores.add_store, "commands.stores.stores.store"),
    "webhook": (webhooks.add_webhook, "commands.webhooks.webhooks.webhook"),
    "worker": (serve.add_worker, "commands.serve.worker.worker"),
    "simulate": (run.add_simulate, "commands.run.simulate.simulate"),
    "test": (run.add_test, "commands.run.plans.test"),
    "demo": (run.add_demo, "demo.demo.demo"),
    "story": (stories.add_story, "commands.stories.stories.story"),
}


def build() -> argparse.ArgumentParser:
    parser = Parser(
        prog="anabranch",
        description="Ask many parties at once, go on with the answers you need, in time, durably.",
        epilog=epilogs.of_all(),
        formatter_class=Formatter,
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", title="verbs")
    for add, _ in VERBS.values():
        add(verbs)
    return parser
