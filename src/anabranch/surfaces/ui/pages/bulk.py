"""One verb over many runs: those that were ticked, or all that the filter of the list finds.

The first form only asks: it is answered with a page that says for each run what would become of it.
The form on that page does it. Both are told by the same operation that the command line uses.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import msgspec
from aiohttp import web
from msgspec.structs import replace

from anabranch.errors import InputError
from anabranch.operations.runs.bulk import VERBS, Bulk, BulkReport, Outcome, bulks_of
from anabranch.surfaces.http.guard.audit import ACTION, SUBJECT
from anabranch.surfaces.http.guard.auth import CALLER
from anabranch.surfaces.ui.context import Ui, actor_of, form_of, show, text_of, ui_of
from anabranch.surfaces.ui.guard import understood
from anabranch.surfaces.ui.pages.actions import REDUCERS, reducer_of, values_of
from anabranch.surfaces.ui.views.filters import LIST, Filter

TICKED_MAX = 500
AT_ONCE = 200  # runs of a filter that are told in one go
SHOWN = 200
BUDGET_SECONDS = 10.0  # then somebody is asked whether to go on

#: Verb → how a button says it, what it means, and what is said of a run afterwards.
WORDS: Mapping[str, tuple[str, str, str]] = {
    "pause": ("Pause", "Running jobs finish; nothing new starts.", "paused"),
    "resume": ("Resume", "They go on where they stopped.", "resumed"),
    "redrive": (
        "Redrive",
        "For each a linked run starts that repeats what failed and what depends on it.",
        "redriven",
    ),
    "patch": (
        "Patch",
        "Writes to the context; the engine evaluates waiting admissions again.",
        "patched",
    ),
    "cancel": ("Cancel", "The engine stops the running jobs. This cannot be undone.", "cancelled"),
    "purge": ("Delete", "Runs that have ended are deleted. This cannot be undone.", "deleted"),
}


class BulkTotals(msgspec.Struct):
    """What became of them, added up over pages."""

    found: int = 0
    done: int = 0
    refused: int = 0
    items: list[Outcome] = []
    next: tuple[int, str] | None = None

    def add(self, report: BulkReport) -> None:
        self.found += report.found
        self.done += report.done
        self.refused += report.refused
        self.next = report.next
        # Who was left alone is what people want to know.
        some = sorted(report.items, key=lambda item: item.outcome != "refused")
        self.items += some[: max(0, SHOWN - len(self.items))]


async def do_with_many(request: web.Request) -> web.StreamResponse:
    form = await form_of(request)
    ui, verb, sure = ui_of(request), text_of(form, "verb"), text_of(form, "sure") == "yes"
    if verb not in VERBS:
        raise InputError(f"there is no verb {verb[:40]!r}: {', '.join(VERBS)}")
    caller = request.get(CALLER)
    if verb == "purge" and caller is not None:
        caller.require("admin")  # what is deleted does not come back
    runs = _ticked(form)
    whole = text_of(form, "which") == "filter"
    if not runs and not whole:
        raise InputError("no run is ticked: tick the runs in the list first")
    asked = await understood(request, _asked, ui, form, sure=sure, actor=actor_of(request))
    request[ACTION] = f"bulk.{verb}{'' if sure else '.dry_run'}"
    request[SUBJECT] = " ".join(runs) or text_of(form, "back")
    told = await (_all(ui, asked, _cursor(form)) if whole else _these(ui, asked, runs))
    back = text_of(form, "back")
    return show(
        request,
        "outcomes.html" if sure else "many.html",
        verb=verb,
        words=WORDS[verb],
        told=told,
        runs=runs,
        whole=whole,
        narrows=Filter.of_address(back).narrows,
        reducers=REDUCERS,
        given={name: text_of(form, name) for name in ("reason", "values", "reducer")},
        cursor=f"{told.next[0]}.{told.next[1]}" if told.next is not None else "",
        back=back if back.partition("?")[0] == LIST and back.isprintable() else LIST,
    )


def _ticked(form: Any) -> list[str]:
    runs = list(dict.fromkeys(run for run in form.getall("run", []) if isinstance(run, str)))
    if len(runs) > TICKED_MAX:
        raise InputError(f"at most {TICKED_MAX} runs can be ticked at once, not {len(runs):,}")
    return runs


def _asked(ui: Ui, form: Any, *, sure: bool, actor: str) -> Bulk:
    verb = text_of(form, "verb")
    wanted = Filter.of_address(text_of(form, "back")).wanted(ui.now(), AT_ONCE)
    return Bulk(
        verb=next(one for one in VERBS if one == verb),
        wanted=replace(wanted, before=None),
        dry_run=not sure,
        actor=actor,
        reason=text_of(form, "reason").strip(),
        values=values_of(text_of(form, "values")) if verb == "patch" and sure else {},
        reducer=reducer_of(form),
        everything=True,  # the page has said how many that is
    )


def _cursor(form: Any) -> tuple[int, str] | None:
    at, _, run = text_of(form, "cursor").partition(".")
    return (int(at), run) if at.isdecimal() and len(at) <= 16 else None


async def _these(ui: Ui, asked: Bulk, runs: list[str]) -> BulkTotals:
    told = BulkTotals()
    told.add(await bulks_of(ui.parts.verbs).these(asked, runs))
    return told


async def _all(ui: Ui, asked: Bulk, cursor: tuple[int, str] | None) -> BulkTotals:
    """Page by page, while there is time."""
    bulks = bulks_of(ui.parts.verbs)
    told, until = BulkTotals(next=cursor), time.monotonic() + BUDGET_SECONDS
    while True:
        wanted = replace(asked.wanted, before=told.next)
        told.add(await bulks.page(replace(asked, wanted=wanted)))
        if told.next is None or time.monotonic() > until:
            return told
