"""`anabranch limits` says who holds a place and who waits: on a store, beside a running engine, at
a server; bad input changes nothing."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from anabranch.surfaces.http.serve import Server

from ..server_in_thread import served
from ..support import HEAD, Here, until


def invoices(limit: object = 1, key: str = "{{ input.customer }}", when_full: str = "queue") -> str:
    limits = json.dumps({"key": key, "limit": limit, "when_full": when_full})
    return f"""{HEAD}metadata: {{name: invoices, path: invoices}}
concurrency: {limits}
workload: {{customer: acme}}
workflow:
  - step: ask
    tool: {{kind: decision, ask: "Send it?"}}
"""


def post(server: Server, way: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(
        f"{server.url}/api/v1/{way}",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def started(server: Server, *customers: str, limit: int = 1) -> list[str]:
    """Runs of these customers, each of which has asked for its place."""
    runs = []
    for customer in customers:
        body = {"definition": invoices(limit), "input": {"customer": customer}}
        runs.append(post(server, "runs", body)["run"])
        until(partial(server.parts.store.places, runs[-1]))
    return runs


def test_a_store_without_limits_says_so(here: Here) -> None:
    here.write("plain.yaml", invoices().replace("concurrency", "# concurrency"))
    here.run("run", "plain.yaml")
    assert here.ok("limits").out == "no run has limits\n"
    assert here.ok("limits", "--json").json == []


def test_a_store_a_running_engine_and_its_server_say_the_same(here: Here) -> None:
    with served(here.store) as server:
        held, waits, other = started(server, "acme", "acme", "zenith")
        asked = {
            words: [
                here.ok("limits", *words, *where).out for where in ((), ("--server", server.url))
            ]
            for words in [("--json",), ("invoices[acme]", "--json")]
        }
        assert all(beside == remote for beside, remote in asked.values())
        listed = json.loads(asked[("--json",)][0])
        cards = [(one["key"], one["limit"], one["holding"], one["waiting"]) for one in listed]
        assert cards == [("invoices[acme]", 1, 1, 1), ("invoices[zenith]", 1, 1, 0)]
        assert listed[1]["waiting_since"] is None
        shown = json.loads(asked[("invoices[acme]", "--json")][0])
        found = [(one["run"], one["state"], one["place"]) for one in shown["runs"]]
        assert found == [(held, "holding", 0), (waits, "waiting", 1)]
        first, *rest = here.ok("limits", "invoices[acme]", "--server", server.url).out.splitlines()
        assert first == "invoices[acme]: 1 of 1 places are held, 1 run waits"
        assert [held in rest[1], waits in rest[2], "waits, 1." in rest[2]] == [True] * 3
        assert other not in "".join(rest)
    assert re.search(r"^invoices\[acme\] +1 of 1 +1 ", here.ok("limits").out, re.MULTILINE)
    assert here.run("limits", "invoices[zenith]").code == 0, "nobody is at work on the store"


def test_a_key_that_no_unfinished_run_has_is_named(here: Here) -> None:
    with served(here.store) as server:
        started(server, "acme")
        for where in ((), ("--server", server.url)):
            refused = here.run("limits", "invoices[acm]", *where)
            assert refused.code == 2
            assert "no unfinished run has a limit 'invoices[acm]'" in refused.err
            assert here.run("limits", "", *where).code == 2
            long = here.run("limits", "k" * 5000, *where)
            assert long.code == 2
            assert len(long.err) < 500


def test_pages_over_http_have_every_key_once(here: Here) -> None:
    with served(here.store) as server:
        customers = sorted(f"c{number}" for number in range(7))
        started(server, *customers)
        found: list[str] = []
        cursor = ""
        for _ in range(10):
            way = f"{server.url}/api/v1/limits?limit=2" + (f"&cursor={cursor}" if cursor else "")
            with urllib.request.urlopen(way) as answer:
                page = json.load(answer)
            found += [one["key"] for one in page["items"]]
            cursor = page["next"]
            if not cursor:
                break
        assert found == [f"invoices[{one}]" for one in customers]
        assert [
            one["key"] for one in here.ok("limits", "--server", server.url, "--json").json
        ] == found


def test_a_key_without_its_brackets_is_answered_with_the_name_of_its_limit(here: Here) -> None:
    with served(here.store) as server:
        started(server, "acme")
        for key in ("acme", "[acme]"):
            done = here.run("limits", key, "--server", server.url)
            assert done.code != 0
            assert "did you mean 'invoices[acme]'?" in done.err
        assert "did you mean" not in here.run("limits", "acm", "--server", server.url).err


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("limits?limit=0", 400, "parameter"),
        ("limits?limit=x", 400, "parameter"),
        ("limits?cursor=nonsense", 400, "parameter"),
        ("limits?odd=1", 400, "unknown_parameter"),
        ("limits/runs", 404, "not_found"),
        ("limits/runs?key=nothing", 404, "not_found"),
        ("limits/runs?key=%00", 400, "parameter"),
    ],
)
def test_bad_questions_over_http_are_refused(
    here: Here, query: str, status: int, code: str
) -> None:
    with served(here.store) as server:
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{server.url}/api/v1/{query}")
        assert (refused.value.code, json.load(refused.value)["code"]) == (status, code)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (invoices(0), "limit"),
        (invoices(-1), "limit"),
        (invoices("many"), "limit"),
        (invoices(True), "limit"),
        (invoices(1.5), "limit"),
        (invoices(when_full="wait"), "when_full"),
        (invoices(key="{{ input.customer"), "the template is wrong"),
    ],
)
def test_a_limit_that_cannot_be_is_a_problem_of_the_definition(
    here: Here, text: str, said: str
) -> None:
    here.write("bad.yaml", text)
    for verb in ("check", "run"):
        refused = here.run(verb, "bad.yaml")
        assert refused.code == 2, verb
        assert said in refused.out + refused.err
    assert here.run("runs").out in ("", "no runs\n")


@pytest.mark.parametrize(
    ("key", "given", "said"),
    [
        ("{{ input.nobody }}", {}, "nobody"),
        ("{{ input.customer }}", {"customer": ""}, "empty"),
        ("{{ input.customer * 100000000 }}", {"customer": "acme"}, ""),
        ("{{ input.customer * 501 }}", {"customer": "a"}, "501 letters"),
        ("{{ 1 // input.zero }}", {"zero": 0, "customer": ""}, ""),
    ],
)
def test_a_key_that_cannot_be_worked_out_refuses_the_start_and_records_nothing(
    here: Here, key: str, given: dict[str, Any], said: str
) -> None:
    here.write("bad.yaml", invoices(key=key).replace("{customer", "{zero: 1, customer"))
    words = [word for name, value in given.items() for word in ("--input", f"{name}={value}")]
    with served(here.folder / "server.db") as server:
        for where in ((), ("--server", server.url)):
            refused = here.run("run", "bad.yaml", *words, *where)
            assert refused.code == 2, refused
            assert said in refused.err
            assert len(refused.err) < 2000
            if where or here.store.exists():
                assert here.ok("runs", *where, "--json").json == []
                assert here.ok("limits", *where).out == "no run has limits\n"


def test_over_http_a_full_limit_and_a_bad_key_have_their_codes(here: Here, tmp_path: Path) -> None:
    with served(tmp_path / "s.db") as server:
        full = {"definition": invoices(when_full="reject")}
        first = post(server, "runs", full)["run"]
        until(lambda: server.parts.store.places(first))
        bad: list[tuple[dict[str, Any], int, str]] = [
            (full, 409, "limit_full"),
            ({"definition": invoices(), "input": {"customer": " "}}, 422, "limit_key"),
            ({"definition": invoices(), "priority": 1001}, 422, "priority"),
        ]
        for body, status, code in bad:
            with pytest.raises(urllib.error.HTTPError) as refused:
                post(server, "runs", body)
            assert (refused.value.code, json.load(refused.value)["code"]) == (status, code)
        assert [one["run"] for one in here.ok("runs", "--server", server.url, "--json").json] == [
            first
        ]


FAR = f"""{HEAD}metadata: {{name: far}}
workflow:
  - step: ask
    spec: {{pool: gpu}}
    tool: {{kind: http, url: "https://api.example.org/"}}
    next: {{arcs: [{{step: near}}]}}
  - step: near
    tool: {{kind: http, url: "https://api.example.org/"}}
"""


@pytest.mark.parametrize(
    ("settings", "warned"),
    [
        ({"rate_limits": "kind:http=5/s"}, ["kind:http"]),
        ({"rate_limits": "host:api.example.org=5/s"}, ["host:api.example.org"]),
        ({"rate_limits": "kind:http=5/s, host:b=1/s"}, ["kind:http", "host:b"]),
        ({"rate_limits": "kind:http=5/s, pool:gpu=2/s"}, []),
        ({"rate_limits": "kind:shell=5/s"}, []),
        ({"rate_limits": "pool:gpu=5/s"}, []),
        ({"rate_limits": "kind:http=5/s", "pools_here": "gpu"}, []),
        ({}, []),
    ],
)
def test_check_warns_of_a_rate_that_workers_elsewhere_do_not_know(
    here: Here, settings: dict[str, str], warned: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    here.write("far.yaml", FAR)
    with served(here.folder / "s.db", **settings) as server:
        said = [here.ok("check", "far.yaml", "--server", server.url).out]
    for name, text in settings.items():
        monkeypatch.setenv(f"ANABRANCH_{name.upper()}", text)
    said.append(here.ok("check", "far.yaml").out)
    for out in said:
        found = re.findall(r"rate-at-workers: warning: the rate of (\S+) does not hold", out)
        assert found == warned, out
        assert ("step 'near'" in out) is False
        assert not warned or "limit the pool as well: `pool:gpu`" in out
