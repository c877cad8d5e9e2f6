"""The command line: every verb in the order of the help. Its arguments stand beside it."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib import import_module
from typing import Any

from anabranch.surfaces.cli.commands import epilogs
from anabranch.surfaces.cli.commands.common import Formatter, Parser

#: Each verb in the order of the help: the function that adds its arguments, in `arguments` of that
#: folder of commands, and the function below this package that does it. A command loads only what
#: it needs.
VERBS: dict[str, tuple[str, str]] = {
    "run": ("run.add_run", "commands.run.run.run"),
    "check": ("inspect.add_check", "commands.inspect.inspect.check"),
    "registry": ("inspect.add_registry", "commands.inspect.registries.registry"),
    "fmt": ("inspect.add_fmt", "commands.inspect.inspect.fmt"),
    "register": ("catalog.add_register", "commands.catalog.catalog.register"),
    "catalog": ("catalog.add_catalog", "commands.catalog.catalog.catalog"),
    "graph": ("inspect.add_graph", "commands.inspect.inspect.graph"),
    "runs": ("inspect.add_runs", "commands.inspect.inspect.runs"),
    "overview": ("inspect.add_overview", "commands.inspect.overview.overview"),
    "show": ("inspect.add_show", "commands.inspect.inspect.show"),
    "events": ("inspect.add_events", "commands.inspect.inspect.events"),
    "logs": ("inspect.add_logs", "commands.inspect.logs.logs"),
    "explain": ("inspect.add_explain", "commands.inspect.inspect.explain"),
    "get": ("inspect.add_get", "commands.inspect.inspect.get"),
    "resume": ("run.add_resume", "commands.run.run.resume"),
    "pause": ("control.add_pause", "commands.control.control.pause"),
    "cancel": ("control.add_cancel", "commands.control.control.cancel"),
    "patch": ("control.add_patch", "commands.control.control.patch"),
    "loop": ("control.add_loop", "commands.control.control.loop"),
    "retry": ("control.add_retry", "commands.control.control.retry"),
    "skip": ("control.add_skip", "commands.control.control.skip"),
    "decide": ("control.add_decide", "commands.control.control.decide"),
    "signal": ("control.add_signal", "commands.control.control.signal"),
    "redrive": ("run.add_redrive", "commands.run.run.redrive"),
    "purge": ("bulk.add_purge", "commands.bulk.purge.purge"),
    "bulk": ("bulk.add_bulk", "commands.bulk.bulk.bulk"),
    "session": ("sessions.add_session", "commands.sessions.sessions.session"),
    "dispatches": ("workflows.add_dispatches", "commands.workflows.workflows.dispatches"),
    "snapshot": ("workflows.add_snapshot", "commands.workflows.workflows.snapshot"),
    "template": ("workflows.add_template", "commands.workflows.workflows.template"),
    "participants": ("workflows.add_participants", "commands.workflows.participants.participants"),
    "passport": ("workflows.add_passport", "commands.workflows.passports.passport"),
    "market": ("market.add_market", "commands.market.documents.market"),
    "serve": ("serve.add_serve", "commands.serve.serve.serve"),
    "dev": ("serve.add_dev", "commands.serve.serve.dev"),
    "token": ("serve.add_token", "commands.serve.tokens.token"),
    "security": ("serve.add_security", "commands.serve.security.security"),
    "credential": ("credentials.add_credential", "commands.credentials.credentials.credential"),
    "cluster": ("cluster.add_cluster", "commands.cluster.cluster.cluster"),
    "node": ("node.add_node", "commands.node.node.node"),
    "dator": ("dator.add_dator", "commands.dator.dator.dator"),
    "arca": ("arca.add_arca", "commands.arca.arca.arca"),
    "offers": ("offers.add_offers", "commands.offers.offers.offers"),
    "export": ("stores.add_export", "commands.stores.transfers.export"),
    "import": ("stores.add_import", "commands.stores.transfers.import_"),
    "store": ("stores.add_store", "commands.stores.stores.store"),
    "limits": ("inspect.add_limits", "commands.inspect.limits.limits"),
    "schedule": ("schedules.add_schedule", "commands.schedules.schedules.schedule"),
    "trigger": ("triggers.add_trigger", "commands.triggers.triggers.trigger"),
    "alias": ("triggers.add_alias", "commands.triggers.aliases.alias"),
    "webhook": ("webhooks.add_webhook", "commands.webhooks.webhooks.webhook"),
    "worker": ("serve.add_worker", "commands.serve.worker.worker"),
    "pools": ("serve.add_pools", "commands.serve.pools.pools"),
    "workers": ("serve.add_workers", "commands.serve.workers.workers"),
    "settings": ("project.add_settings", "commands.project.settings.settings"),
    "simulate": ("run.add_simulate", "commands.run.simulate.simulate"),
    "test": ("run.add_test", "commands.run.plans.test"),
    "demo": ("run.add_demo", "demo.demo.demo"),
    "init": ("project.add_init", "commands.project.init.init"),
    "schema": ("project.add_schema", "commands.project.schema.schema"),
    "completion": ("project.add_completion", "commands.project.completion.completion"),
    "examples": ("project.add_examples", "commands.project.examples.examples"),
    "story": ("stories.add_story", "commands.stories.stories.story"),
}


def build(verb: str = "") -> argparse.ArgumentParser:
    """The whole grammar, or that of one verb: to make all of them takes longer than most verbs."""
    parser = Parser(
        prog="anabranch",
        description="Ask many parties at once, go on with the answers you need, in time, durably.",
        epilog=epilogs.of_all(),
        formatter_class=Formatter,
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", title="verbs")
    for name in [verb] if verb in VERBS else VERBS:
        _adding(VERBS[name][0])(verbs)
    return parser


def _adding(name: str) -> Callable[[Any], None]:
    folder, _, function = name.partition(".")
    module = import_module(f"anabranch.surfaces.cli.commands.{folder}.arguments")
    adding: Callable[[Any], None] = getattr(module, function)
    return adding
