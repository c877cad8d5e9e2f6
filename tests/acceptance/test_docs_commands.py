"""Every command in the documentation is run by a test: most of them here, as they stand, each page
on a stage with what it takes for granted; those of long sessions by the tests of their pages. What
no test can run has its reason, and is checked against the grammar."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from anabranch.surfaces.cli import parser
from postgres_server import running_postgres

from .docs_blocks import ROOT, SHELL, Block, Stage, blocks, commands, follow, pages, shell_blocks

PROGRAMS = Path(sys.executable).parent
TESTS = ROOT / "tests"

# -- what the pages take for granted ---------------------------------------------------------------


def book(name: str, *steps: str, more: str = "") -> str:
    head = f"apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {{name: {name.rpartition('/')[2]}"
    return f"{head}, path: {name}}}\n{more}workflow:\n" + "".join(f"  - {one}\n" for one in steps)


NOOP = "step: only\n    tool: {kind: noop, result: done}"
GATE = "step: approve\n    tool: {kind: decision, ask: go on?}"
SERVER = """
anabranch serve > server.log 2>&1 &
until grep -q ' at http' server.log || ! kill -0 $!; do sleep 0.05; done
"""
UP_TO_DATE = "curl -sf localhost:8629/api/v1/runs -H 'Content-Type: application/json' -d"

CRON_PROGRAMS = """
mkdir -p srv/bin
ln -s $(which true) srv/bin/fetch-orders
cp -P srv/bin/fetch-orders srv/bin/send-report
"""
#: Does not know number 30 until it is mended, and answers the last one when it may go on.
SLOW_SERVICE = """
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

class Addresses(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/199" and not Path("go").exists():
            Path("asked").touch()
            while not Path("go").exists():
                time.sleep(0.05)
        self.send_response(404 if self.path == "/30" and not Path("mended").exists() else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_given):
        pass

with ThreadingHTTPServer(("127.0.0.1", 8746), Addresses) as server:
    Path("ready").touch()
    server.serve_forever()
"""


def of_page(page: str, language: str, number: int = 0) -> str:
    found = [one.text for one in blocks(page) if one.language == language and not one.title]
    return found[number]


QUOTES = of_page("README.md", "yaml").replace("timeout: 5s", "timeout: 1h")  # a busy machine
LIMITED = of_page("docs/limits.md", "yaml").partition("workflow:")[0] + (
    f"apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {{name: invoices, path: invoices}}\n"
    f"workflow:\n  - {GATE}\n"
)
PACK = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: pack}\n" + next(
    one.text for one in blocks("docs/playbook/document.md") if "\ninputs:" in one.text
)
STAGES: dict[str, list[Stage]] = {
    "README.md": [
        Stage(
            only="source\nanabranch run\nanabranch dev\nexport",
            files={"quotes.yaml": QUOTES, ".venv/bin/activate": ""},
            before=f"ln -s '{ROOT}/examples' examples",
            says=('result: {"shop": "south", "price": 11}',),
        )
    ],
    "docs/catalog.md": [
        Stage(
            files={"flows/load.yaml": book("etl/load_orders", NOOP)},
            before="anabranch register flows/*.yaml\n"
            "sed -i 's/result: done/result: loaded/' flows/load.yaml",
            says=("version 2", "result: loaded"),
        )
    ],
    "docs/credentials.md": [
        Stage(
            only="anabranch",
            files={"pg_main.json": '{"host": "db.example", "user": "u", "password": "long-one"}'},
            before="openssl rand -base64 48 > new.key && chmod 600 new.key",
        ),
        Stage(
            only="openssl",
            files={"pg_main.json": '{"host": "db.example", "user": "u", "password": "long-one"}'},
            before="anabranch credential add pg_main --type postgres --from-file pg_main.json",
        ),
    ],
    "docs/how-to/back-up.md": [
        Stage(
            files={"one.yaml": book("one", NOOP)},
            before="mkdir backups; anabranch run one.yaml",
            changes={"/backups": "{folder}/backups"},
        )
    ],
    "docs/how-to/deploy.md": [
        Stage(
            only="anabranch",
            before="mkdir store",
            changes={"/var/lib/anabranch": "{folder}/store"},
            says=("anb_",),
        )
    ],
    "docs/how-to/from-celery.md": [
        Stage(
            files={
                "shop/__init__.py": "",
                "shop/tools.py": of_page("docs/how-to/from-celery.md", "python"),
                "pictures.yaml": of_page("docs/how-to/from-celery.md", "yaml"),
            },
            says=("completed",),
        )
    ],
    "docs/how-to/from-cron.md": [
        Stage(
            only="anabranch",
            files={"nightly.yaml": of_page("docs/how-to/from-cron.md", "yaml")},
            before=CRON_PROGRAMS,
            changes={"/srv/": "{folder}/srv/"},
            says=("completed", "15 2 * * *"),
        ),
        Stage(
            only="15 2",
            files={"nightly.yaml": of_page("docs/how-to/from-cron.md", "yaml")},
            before=f"{CRON_PROGRAMS}\nmv nightly.yaml srv{SERVER}",
            changes={"/srv/": "{folder}/srv/"},
            says=("completed",),
        ),
    ],
    "docs/how-to/slow-api.md": [
        Stage(
            files={
                "look_up.yaml": of_page("docs/how-to/slow-api.md", "yaml").replace("50000", "200"),
                "service.py": SLOW_SERVICE,
                "go": "",
            },
            before="python service.py &\nuntil [ -e ready ]; do sleep 0.05; done",
            changes={
                "https://addresses.example": "http://127.0.0.1:8746",
                "anabranch loop last": "rm go; anabranch run look_up.yaml > slow.txt 2>&1 & slow=$!"
                "\nuntil [ -e asked ]; do sleep 0.05; done; anabranch loop last",
                "anabranch redrive last": "touch go mended; wait $slow; anabranch redrive last",
            },
            ports=("8746",),
            says=("completed, 1 problem tolerated", "404"),
        )
    ],
    "docs/how-to/webhook.md": [
        Stage(
            files={"secret.txt": "a secret of the shop"},
            changes={"https://HOST": "http://127.0.0.1:8629"},
            says=('"order": "A-17"',),
        )
    ],
    "docs/http.md": [Stage(before=SERVER)],
    "docs/limits.md": [
        Stage(
            files={
                "anabranch.toml": of_page("docs/limits.md", "toml"),
                "invoices.yaml": LIMITED,
            },
            before="anabranch register invoices.yaml" + SERVER + "for n in 1 2 3 4; do "
            f"""{UP_TO_DATE} '{{"path": "invoices"}}'; done
until anabranch limits --json | grep -q '"holding": *3.*"waiting": *1'; do sleep 0.1; done
until [ $(anabranch runs --status queued --json | grep -c '"queued": *"inv') = 1 ]
do sleep 0.1; done""",
        )
    ],
    "docs/logs.md": [
        Stage(
            files={"shop.yaml": of_page("docs/logs.md", "yaml")},
            says=("warning: slow today", "pack[1]  packed 2"),
        )
    ],
    "docs/market-documents.md": [Stage(before=f"ln -s '{ROOT}/examples' examples")],
    "docs/playbook/document.md": [Stage(files={"pack.yaml": PACK})],
    "docs/operations.md": [
        Stage(only="curl", before=SERVER, says=("ok: live, ready",)),
        Stage(only="export OTEL"),
        Stage(
            only="anabranch bulk",
            files={"gate.yaml": book("gate", GATE)},
            before="anabranch run gate.yaml --label tenant=a || [ $? = 4 ]",
            says=("1 run",),
        ),
        Stage(
            only="anabranch store backup",
            files={"one.yaml": book("one", NOOP)},
            before="mkdir backups; anabranch run one.yaml",
            changes={"/backups": "{folder}/backups"},
        ),
    ],
    "docs/scale.md": [Stage(only="python -m bench.scale.plan")],
    "docs/server.md": [
        Stage(
            only="anabranch serve\nexport",
            files={"order.yaml": book("order", GATE, more="workload: {item: ''}\n")},
        ),
        Stage(
            only="anabranch token",
            before="openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes "
            "-days 2 -subj /CN=localhost -keyout privkey.pem -out fullchain.pem 2> openssl.log",
            changes={"0.0.0.0": "127.0.0.1"},
        ),
    ],
    "docs/triggers.md": [
        Stage(
            files={
                "secret.txt": "a secret of the shop",
                "quotes.yaml": book("quotes", NOOP, more="workload: {order: ''}\n"),
                "daily.yaml": book("reports/daily", NOOP, more="workload: {rows: ''}\n"),
                "load.yaml": book("load_orders", NOOP),
                "alarm.yaml": book("ops/alarm", NOOP, more="workload: {run: ''}\n"),
            },
            before="anabranch register *.yaml\nfor n in 2 3; do "
            'sed -i "s/result: .*}/result: $n}/" quotes.yaml; anabranch register quotes.yaml; '
            "done\nanabranch alias set prod quotes@2",
            says=("result: 3",),
        )
    ],
    "docs/tutorial/index.md": [Stage(only="mkdir", says=("anabranch ",))],
    "docs/webhooks.md": [
        Stage(only="anabranch webhook\ncurl", before=SERVER),
        Stage(
            only="ANABRANCH\npython",
            files={
                "receiver.py": of_page("docs/webhooks.md", "python"),
                "hello.yaml": book("hello", NOOP),
            },
            ports=("8745",),
        ),
    ],
    "docs/workers.md": [Stage(only="anabranch serve    ")],
}

#: Stages for `make soak`, by page and number: the others run the same verbs.
LATER = {
    ("docs/credentials.md", 1),
    ("docs/how-to/deploy.md", 0),
    ("docs/how-to/from-celery.md", 0),
    ("docs/how-to/from-cron.md", 0),
    ("docs/how-to/from-cron.md", 1),
    ("docs/http.md", 0),
    ("docs/operations.md", 0),
    ("docs/operations.md", 1),
    ("docs/operations.md", 3),
    ("docs/server.md", 0),
    ("docs/webhooks.md", 0),
    ("docs/workers.md", 0),
}

# -- what is run elsewhere -------------------------------------------------------------------------

TRIED = ("<!-- tried: begin -->", "<!-- tried: end -->")
BY_HAND = ("<!-- by hand: begin -->", "<!-- by hand: end -->")
#: The part of a page that a test runs as it stands: between these two marks, or all of it.
RUN_BY: dict[str, tuple[str, tuple[str, str]]] = {
    "docs/clusters.md": ("acceptance/test_clusters_page.py", TRIED),
    "docs/market.md": ("acceptance/test_market_page.py", TRIED),
    "docs/node.md": ("acceptance/test_node_page.py", TRIED),
    "docs/postgres.md": ("acceptance/test_postgres_page.py", TRIED),
    "docs/schedules.md": ("acceptance/test_schedules_page.py", TRIED),
    "docs/workers.md": ("surfaces/worker/test_documentation.py", BY_HAND),
    "examples/cluster/README.md": ("acceptance/test_clusters_page.py", ("", "")),
    **{
        f"docs/tutorial/{page.name}": ("acceptance/test_tutorial.py", ("", ""))
        for page in sorted((ROOT / "docs" / "tutorial").glob("[1-9]-*.md"))
    },
}
#: (page, beginning of the block) → why no test runs it as it stands.
NOT_RUN = {
    ("README.md", "make demo"): "sets up an environment; test_demo.py runs the showcase",
    ("README.md", "anabranch story 006"): "test_stories.py runs it, in each of its variants",
    (
        "docs/clusters.md",
        "anabranch run render.yaml",
    ): "a cluster elsewhere; the session below runs",
    ("docs/dator.md", "anabranch dator role"): "needs a node; docs/market.md runs these in order",
    ("docs/how-to/deploy.md", "useradd"): "needs root, and a package index",
    ("docs/how-to/deploy.md", "export DB_PASSWORD"): "needs Docker; test_deploy.py has its files",
    ("docs/how-to/deploy.md", "docker pull"): "needs Docker, and its registry",
    ("docs/operations.md", "docker run"): "needs Docker",
    ("docs/scale.md", "python -m bench.scale  "): "takes minutes; test_scale.py has the loads",
    ("docs/tutorial/index.md", "python3 -m venv"): "needs a package index; test_packaging.py",
    ("docs/workers.md", "anabranch serve --store postgresql"): "docs/postgres.md runs the same",
}
#: Run by `test_the_commands_for_postgresql`, which has a database.
WITH_POSTGRES = {
    "docs/operations.md": ("anabranch store copy", "pg_dump", "pg_basebackup"),
    "docs/postgres.md": ("pg_dump",),
}


def reason_of(block: Block) -> str:
    found = [why for (page, first), why in NOT_RUN.items()
             if page == block.page and block.first.startswith(first)]  # fmt: skip
    return found[0] if found else ""


def is_run_elsewhere(block: Block) -> bool:
    if block.page not in RUN_BY:
        return False
    begin, end = RUN_BY[block.page][1]
    lines = (ROOT / block.page).read_text(encoding="utf-8").splitlines()
    if not begin:
        return True
    return lines.index(begin) < block.line < lines.index(end)


def who_runs(block: Block) -> list[str]:
    """The test that runs it; a reason is one, too."""
    found = [f"stage {n}" for n, one in enumerate(STAGES.get(block.page, ())) if one.takes(block)]
    found += ["its own test"] * is_run_elsewhere(block)
    if block.page in WITH_POSTGRES and block.first.startswith(WITH_POSTGRES[block.page]):
        found.append("with PostgreSQL")
    return found + [reason_of(block)] * bool(reason_of(block))


# -- the tests -------------------------------------------------------------------------------------


def test_every_block_of_commands_is_run_by_one_test() -> None:
    every = [(page, one) for page in pages() for one in shell_blocks(page)]
    found = {f"{page}:{one.line} {one.first}": who_runs(one) for page, one in every}
    assert {where: who for where, who in found.items() if len(who) != 1} == {}


def test_most_commands_are_run_as_they_stand() -> None:
    every = [one for page in pages() for one in shell_blocks(page)]
    told = [one for one in every if not reason_of(one)]
    assert len(told) > 80
    assert len(every) - len(told) == len(NOT_RUN), "a reason for a block that is gone"


def test_tests_that_run_pages_read_them() -> None:
    for page, (test, _) in RUN_BY.items():
        text = (TESTS / test).read_text(encoding="utf-8")
        parts = [part for part in page.split("/") if part not in ("README.md",)]
        words = parts[:-1] if parts[-1][0].isdigit() else parts
        assert [word for word in words if f'"{word}"' not in text] == [], page


COMMAND = re.compile(
    r"^(?:\$ )?(?:[A-Z_]+=\S+ )*"
    r"(?:anabranch|curl|docker|export|openssl|pip|python3?|pg_\w+|createdb|make|kill|source) ",
    re.MULTILINE,
)


def test_no_command_stands_in_a_block_of_another_language() -> None:
    """Or no test would see it."""
    every = [one for page in pages() for one in blocks(page)]
    others = [one for one in every if one.language in ("", "text", "txt", "none")]
    assert [(one.page, one.line, one.first) for one in others if COMMAND.search(one.text)] == []


def is_grammar(words: list[str]) -> bool:
    try:
        parser.build(words[0]).parse_args(words)
    except SystemExit:
        return False
    return True


def of_ours(block: Block) -> Iterator[list[str]]:
    for one in commands(block):
        words = shlex.split(one.text.removesuffix(" &").removesuffix(" …"), comments=True)
        if words[:1] == ["anabranch"]:
            yield words[1:]
        if words[:4] == ["docker", "compose", "run", "--rm"]:
            yield words[5:]


def test_commands_that_are_not_run_are_in_the_grammar() -> None:
    told = [one for page in pages() for one in shell_blocks(page) if reason_of(one)]
    every = [(one.page, words) for one in told for words in of_ours(one)]
    assert len(every) > 8
    assert [one for one in every if not is_grammar(one[1])] == []


def test_make_has_the_targets_that_the_pages_name() -> None:
    known = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = {
        word
        for page in pages()
        for one in shell_blocks(page)
        for word in re.findall(r"^\$? ?make ([a-z]+)", one.text, re.MULTILINE)
    }
    assert named
    assert named - set(known) == set()


CASES = [
    pytest.param(page, number, marks=[pytest.mark.soak] * ((page, number) in LATER))
    for page, stages in STAGES.items()
    for number in range(len(stages))
]


def verbs_of(some: Iterable[Block]) -> set[str]:
    return {words[0] for block in some for words in of_ours(block)}


def test_every_verb_of_the_pages_is_run_without_a_soak() -> None:
    later, now = list[Block](), list[Block]()
    for block in (one for page in pages() for one in shell_blocks(page)):
        stages = [n for n, one in enumerate(STAGES.get(block.page, ())) if one.takes(block)]
        (later if any((block.page, n) in LATER for n in stages) else now).append(block)
    assert {(page, n) for page, stages in STAGES.items() for n in range(len(stages))} >= LATER
    assert verbs_of(later) - verbs_of(now) == set()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="the pages are written for curl")
@pytest.mark.parametrize(("page", "number"), CASES, ids=lambda one: str(one))
def test_the_commands_of_a_page_can_be_followed(page: str, number: int, tmp_path: Path) -> None:
    env = {"PYTHONPATH": str(ROOT)} if page == "docs/scale.md" else {}
    assert follow(page, STAGES[page][number], tmp_path, PROGRAMS, env=env) > 0


@pytest.fixture
def database() -> Iterator[tuple[str, Path]]:
    """A server for the page alone: the address of its socket, and its programs."""
    with running_postgres(port=5432) as server:
        yield str(server.folder), server.programs


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize("page", WITH_POSTGRES)
def test_the_commands_for_postgresql(page: str, tmp_path: Path, database: tuple[str, Path]) -> None:
    place, programs = database
    url = f"postgresql://postgres@{quote(place, safe='')}"
    stage = Stage(
        only="\n".join(WITH_POSTGRES[page]),
        files={"one.yaml": book("one", NOOP)},
        before="createdb anabranch\nanabranch run one.yaml"
        if page == "docs/operations.md"
        else f"createdb anabranch\nanabranch run one.yaml --store '{url}/anabranch'",
        changes={"postgresql://anabranch@db.example": url, "/backups": "{folder}"},
    )
    env = {
        "PGHOST": place,
        "PGUSER": "postgres",
        "DATABASE_URL": f"{url}/anabranch",
        "RESTORED_URL": f"{url}/restored",
    }
    assert follow(page, stage, tmp_path, PROGRAMS, programs, env=env) >= 2


# -- the tests of the tests ------------------------------------------------------------------------


def test_a_new_page_with_commands_that_nothing_runs_is_found() -> None:
    page = "# New\n\n```sh\nanabranch runs\n```\n\n```\nanabranch limits\n```\n"
    first, second = blocks("docs/new.md", page)
    assert first.language in SHELL
    assert who_runs(first) == []
    assert COMMAND.search(second.text)


def test_a_command_of_a_page_that_fails_is_found(tmp_path: Path) -> None:
    stage = Stage(only="mkdir", changes={"anabranch --version": "anabranch --vers1on"})
    with pytest.raises(AssertionError, match="--vers1on"):
        follow("docs/tutorial/index.md", stage, tmp_path, PROGRAMS)
