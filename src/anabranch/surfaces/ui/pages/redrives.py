"""The page that says what a redrive of a run would do, before anybody asks for it."""

from __future__ import annotations

from aiohttp import web

from anabranch.errors import AnabranchError
from anabranch.operations.runs.redrive_plan import RedrivePlan, prepare_redrive
from anabranch.surfaces.ui.context import show, ui_of
from anabranch.surfaces.ui.pages.run import frame


async def page(request: web.Request) -> web.StreamResponse:
    ui = ui_of(request)
    head = ui.head(request.match_info["run"])
    plan: RedrivePlan | None = None
    refused = ""
    try:
        plan = await ui.look(lambda by: prepare_redrive(by.read, head.run).plan())
    except AnabranchError as error:  # it has not ended, or nothing failed: the page says so
        refused = error.message
    return show(
        request, "redrive.html", plan=plan, refused=refused, **await frame(ui, head, "redrive")
    )
