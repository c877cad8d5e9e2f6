"""`webhook`: who is told of which events, how that went, and sending again."""

from __future__ import annotations

import argparse

from anabranch.errors import InputError
from anabranch.settings import Settings
from anabranch.surfaces.cli import values
from anabranch.surfaces.cli.backend.factory import open_backend
from anabranch.surfaces.cli.backend.port import Row, WebhookBackend
from anabranch.surfaces.cli.output import render

HEAD = ("ID", "STATE", "WAIT", "DEAD", "EVENTS", "URL")
DELIVERIES_HEAD = ("DELIVERY", "EVENT", "STATE", "TRIES", "FOUND", "LAST", "")


async def webhook(options: argparse.Namespace, settings: Settings) -> int:
    async with open_backend(options, settings) as at:
        return await ACTIONS[options.action](options, at.webhooks)


# -- looking -------------------------------------------------------------------------------------


async def _list(options: argparse.Namespace, hooks: WebhookBackend) -> int:
    found = await hooks.all()
    rows = [
        (one["id"], _state(one), str(one["pending"]), str(one["dead"]),
         render.clean(",".join(one["kinds"])), render.clean(one["url"]))
        for one in found
    ]  # fmt: skip
    return render.tell_rows(options, found, rows, HEAD, "no webhooks")


async def _show(options: argparse.Namespace, hooks: WebhookBackend) -> int:
    card = await hooks.show(options.hook)
    return render.tell(options, card, "\n".join(_lines(card)))


def _state(card: Row) -> str:
    return "on" if card["enabled"] else "paused"


def _lines(card: Row) -> list[str]:
    only = [f"{key}={value}" for key, value in card["labels"].items()]
    only += [f"{key} {card[key]}" for key in ("name", "dialect") if card[key] is not None]
    facts = {
        "events": ", ".join(card["kinds"]),
        "only of": ", ".join(only),
        "secret from": card["secret_env"],
        "made": render.instant(card["created_at"]),
        "waiting": f"{card['pending']:,}",
        "dead": f"{card['dead']:,}",
        "behind": f"{card['behind']:,} rows of the log",
    }
    head = f"webhook {card['id']} ({_state(card)}) tells {render.clean(card['url'])}"
    return [head, *render.fact_lines(facts)]


async def _deliveries(options: argparse.Namespace, hooks: WebhookBackend) -> int:
    found = await hooks.deliveries(
        options.hook, state=options.state, run=options.run, limit=options.limit
    )
    rows = [
        (one["id"], one["kind"], one["state"], str(one["attempts"]),
         render.instant(one["found_at"]), render.instant(one["last_at"]) if one["last_at"] else "-",
         render.clean(one["last_error"]))
        for one in found
    ]  # fmt: skip
    return render.tell_rows(options, found, rows, DELIVERIES_HEAD, "no deliveries")


async def _delivery(options: argparse.Namespace, hooks: WebhookBackend) -> int:
    card = await hooks.delivery(options.hook, options.delivery)
    lines = [f"{card['id']}: {card['kind']}, {card['state']}, {card['attempts']} tries"]
    if card["last_error"]:
        lines.append(f"  last: {render.clean(card['last_error'])}")
    lines.append(render.json_text(card["body"]))
    return render.tell(options, card, "\n".join(lines))


# -- doing ---------------------------------------------------------------------------------------


async def _create(options: argparse.Namespace, hooks: WebhookBackend) -> int:
    draft = {
        "url": options.url,
        "kinds": options.kind,
        "labels": values.labels(options.label),
        "dialect": options.dialect,
        "name": options.name,
        "enabled": not options.paused,
        "secret_env": options.secret_env,
        "begin": "beginning" if options.from_beginning else "now",
    }
    return _print_made(options, await hooks.create(draft))


def _print_made(options: argparse.Namespace, card: Row) -> int:
    """With its secret, if one was made."""
    events = render.clean(", ".join(card["kinds"]))
    lines = [f"webhook {card['id']} tells {render.clean(card['url'])} of {events}"]
    if card["secret"]:
        lines.append(f"secret {card['secret']} (it is shown only once)")
    return render.tell(options, card, "\n".join(lines))


async def _rotate(options: argparse.Namespace, hooks: WebhookBackend) -> int:
    return _print_made(options, await hooks.rotate(options.hook))


async def _change(options: argparse.Namespace, hooks: WebhookBackend) -> int:
    given: Row = {}
    if options.url is not None:
        given["url"] = options.url
    if options.kind is not None:
        given["kinds"] = options.kind
    if options.label is not None:
        given["labels"] = values.labels([pair for pair in options.label if pair])
    for name in ("name", "dialect"):
        if getattr(options, name) is not None:
            given[name] = getattr(options, name) or None
    if not given:
        said = "say what to change: --url, --kind, --label, --name or --dialect"
        raise InputError(said, code="usage")
    return await _changed(options, hooks, given)


async def _pause(options: argparse.Namespace, hooks: WebhookBackend) -> int:
    return await _changed(options, hooks, {"enabled": False})


async def _resume(options: argparse.Namespace, hooks: WebhookBackend) -> int:
    return await _changed(options, hooks, {"enabled": True})


async def _changed(options: argparse.Namespace, hooks: WebhookBackend, given: Row) -> int:
    card = await hooks.change(options.hook, given)
    return render.tell(options, card, "\n".join(_lines(card)))


async def _delete(options: argparse.Namespace, hooks: WebhookBackend) -> int:
    await hooks.remove(options.hook)
    return render.tell(options, {"id": options.hook}, f"removed: {options.hook}")


async def _redeliver(options: argparse.Namespace, hooks: WebhookBackend) -> int:
    if options.delivery is not None:
        card = await hooks.redeliver(options.hook, options.delivery)
        return render.tell(options, card, f"goes out again: {card['id']}")
    count = await hooks.redeliver_dead(options.hook)
    return render.tell(options, {"count": count}, f"go out again: {count:,}")


ACTIONS = {
    "create": _create,
    "list": _list,
    "show": _show,
    "change": _change,
    "pause": _pause,
    "resume": _resume,
    "rotate": _rotate,
    "delete": _delete,
    "deliveries": _deliveries,
    "delivery": _delivery,
    "redeliver": _redeliver,
}
