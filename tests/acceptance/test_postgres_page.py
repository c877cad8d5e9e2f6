"""The commands of docs/postgres.md, from a file with open runs to two servers and two workers on
PostgreSQL: a shell runs them as they stand, against a real database and with real processes."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import redirect_stderr, suppress
from pathlib import Path
from urllib.parse import quote

import pytest

from anabranch.surfaces.cli.parser import build
from postgres_server import running_postgres

from .pages import part, try_page, with_free_ports

PAGE = Path(__file__).parents[2] / "docs" / "postgres.md"
PORTS = ("8700", "8701", "8702")


def can_copy() -> bool:
    """Whether the page can be followed: its second half needs what `store copy` brings."""
    with suppress(SystemExit), open(os.devnull, "w") as nowhere, redirect_stderr(nowhere):
        build().parse_args(["store", "copy", "from.db", "to.db"])
        return True
    return False


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not can_copy(), reason="there is no `store copy` yet"),
    pytest.mark.skipif(shutil.which("curl") is None, reason="the page is written for curl"),
]


@pytest.fixture
def database() -> Iterator[tuple[str, Path]]:
    """A server for the page alone, which names a role and a database: its socket as the host of an
    address, and its programs."""
    with running_postgres(port=5432) as server:
        yield quote(str(server.folder), safe=""), server.programs


@pytest.mark.soak
def test_every_command_of_the_page_says_what_is_written_under_it(
    tmp_path: Path, database: tuple[str, Path]
) -> None:
    host, programs = database
    page = PAGE.read_text(encoding="utf-8").replace("db.example", host)
    page = with_free_ports(page, PORTS)
    (definition,) = re.findall(r"```yaml\n(.*?)```", part(page), re.DOTALL)
    (tmp_path / "order.yaml").write_text(definition, encoding="utf-8")
    assert try_page(page, tmp_path, programs) >= 14
