"""`test`: play the test plans and scenarios of a bundle, and say which expectation did not hold."""

from __future__ import annotations

import argparse
from pathlib import Path

from msgspec.structs import asdict

from anabranch import files
from anabranch.dialects.source import SourceLimits
from anabranch.settings import Settings
from anabranch.surfaces.cli import values
from anabranch.surfaces.cli.output import render


async def test(options: argparse.Namespace, _settings: Settings) -> int:
    from anabranch.testing.plan.stage import mocks_from
    from anabranch.testing.plans import play_tests

    most = SourceLimits().bytes_max
    texts = {file: files.read_text(Path(file), most) for file in options.files}
    mocks = None
    if options.mocks:
        mocks = mocks_from(values.file_input(options.mocks), options.mocks)
    report = play_tests(texts, mocks)
    if options.json:
        results = [
            {
                "kind": one.kind,
                "title": one.title,
                "ok": one.ok,
                "seconds": one.seconds,
                "failed": [asdict(each) for each in one.failed],
                "not_mocked": list(one.missing),
            }
            for one in report.results
        ]
        print(render.json_line({"ok": report.ok, "results": results}))
    else:
        print("\n".join(render.clean(line) for line in str(report).splitlines()))
    return 0 if report.ok else 1
