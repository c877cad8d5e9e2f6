"""`settings`: every setting, its value, and where that comes from."""

from __future__ import annotations

import argparse

from msgspec.structs import asdict

from anabranch.operations.settings_view import ShownSetting, shown_settings
from anabranch.settings import Settings
from anabranch.settings_file import Loaded
from anabranch.surfaces.cli.output import render

HEAD = ("SETTING", "VALUE", "ORIGIN", "PLACE")


async def settings(options: argparse.Namespace, _settings: Settings) -> int:
    loaded: Loaded = options.loaded
    found = [
        each
        for each in shown_settings(loaded, options.names)
        if not options.changed or each.origin != "default"
    ]
    if options.json:
        file = None if loaded.file is None else str(loaded.file)
        values = {each.name: _facts(each) for each in found}
        print(render.json_line({"file": file, "settings": values}))
        return 0
    print(f"file: {loaded.file or 'none'}")
    rows = [(each.name, _text(each.value), each.origin, each.place) for each in found]
    print("\n".join(render.table(rows, HEAD)) if rows else "every setting has its default")
    return 0


def _facts(setting: ShownSetting) -> dict[str, object]:
    facts = asdict(setting)
    del facts["name"]
    return facts


def _text(value: object) -> str:
    return render.clean(str(value)) or "-"
