"""What the package logs leaves it without secrets, whatever handlers a program has."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

import anabranch
from anabranch.parts import Parts
from anabranch.settings import Settings
from anabranch.store.factory import open_store
from anabranch.work.secrets.redaction import LOGGERS, RedactingFilter

from ..support import run

SOURCE = Path(anabranch.__file__).parent


def test_every_logger_of_the_package_is_guarded() -> None:
    used = set()
    for file in SOURCE.rglob("*.py"):
        for name in re.findall(r"getLogger\(([^)]+)\)", file.read_text()):
            module = ".".join(("anabranch", *file.relative_to(SOURCE).with_suffix("").parts))
            used.add(module if name == "__name__" else name.strip('"'))
    assert used - {"name", "record.name"} <= set(LOGGERS)  # those are of the work itself


def test_an_engine_keeps_its_secrets_out_of_the_log_and_lets_go_when_it_closes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        settings = Settings(store=":memory:")
        store = open_store(settings)
        parts = Parts(store, settings, anabranch.Toolbox())
        parts.redactor.learn("opensesame")
        logging.getLogger("anabranch.engine").error("it said %s", "opensesame")
        await parts.close()
        store.close()

    def guards() -> int:
        filters = [each for name in LOGGERS for each in logging.getLogger(name).filters]
        return sum(isinstance(each, RedactingFilter) for each in filters)

    before = guards()
    run(scenario())
    assert [record.getMessage() for record in caplog.records] == ["it said ***"]
    assert guards() == before
