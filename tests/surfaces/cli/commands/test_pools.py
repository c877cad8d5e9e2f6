"""`pools` and `--pool`: who does the jobs of a pool, asked at a server or found out from here."""

from __future__ import annotations

import pytest

from anabranch.pools.backend import BackendAway, BackendUnfit
from pools.scripted import Script, scripts

from ..server_in_thread import served
from ..support import HEAD, HELLO, Here

__all__ = ["scripts"]

HEAVY = f"""{HEAD}metadata: {{name: heavy}}
workflow:
  - step: compute
    spec: {{pool: heavy}}
    tool: {{kind: noop, result: done}}
"""
DASK = "heavy=dask://hpc:8786"


@pytest.mark.parametrize("verb", ["run", "check", "serve", "pools"])
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("heavy", "NAME=ADDRESS"),
        ("heavy=dsk://hpc:8786", "did you mean 'dask'"),
        ("heavy=dask://hpc:8786?queu=1", "did you mean 'queue'"),
        ("heavy=dask://hpc:many", "a host and a port"),
        ("heavy=hpc:8786", "is not known"),
    ],
)
def test_a_bad_address_is_refused_by_name_and_nothing_is_made(
    here: Here, verb: str, given: str, said: str
) -> None:
    here.write("heavy.yaml", HEAVY)
    file = ["heavy.yaml"] if verb in ("run", "check") else []
    done = here.run(verb, *file, "--pool", given)
    assert done.code == 2
    assert said in done.err
    assert "Traceback" not in done.err
    assert not here.store.exists()


def test_the_same_pool_twice_is_refused(here: Here) -> None:
    done = here.run("pools", "--pool", DASK, "--pool", "heavy=ray:auto")
    assert (done.code, "given twice" in done.err) == (2, True)


def test_what_is_typed_replaces_the_setting_of_that_pool_only(
    here: Here, scripts: dict[str, Script], monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts |= {"heavy": Script(), "gpu": Script()}
    monkeypatch.setenv("ANABRANCH_POOLS", "heavy=dask://old:1, gpu=ray:auto?resources=GPU:1")
    found = here.ok("pools", "--pool", "heavy=dask://new:2?tools=a,b", "--json").json
    assert {one["pool"]: one["address"] for one in found} == {
        "heavy": "dask://new:2",
        "gpu": "ray:auto",
    }


def test_an_extra_that_is_not_installed_is_named(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anabranch.pools.backends.find_spec", lambda _name: None)
    here.write("heavy.yaml", HEAVY)
    for words in (("pools",), ("run", "heavy.yaml"), ("serve", "--port", "0")):
        done = here.run(*words, "--pool", DASK)
        assert done.code == 2, words
        assert "pip install 'anabranch[dask]'" in done.err


def test_a_cluster_is_looked_at_from_here(here: Here, scripts: dict[str, Script]) -> None:
    scripts["heavy"] = Script(slots=4, workers=2)
    done = here.ok("pools", "--pool", DASK)
    head, row, pages = done.out.splitlines()
    assert head.split() == ["POOL", "STATE", "WHO", "VERSION", "WORKERS", "AT", "ONCE"]
    assert row.split() == ["heavy", "open", "dask", "at", "hpc:8786", "1.2.3", "2", "4"]
    assert pages == "heavy: its own pages are at http://127.0.0.1:8787/status"
    assert scripts["heavy"].backend is not None
    assert scripts["heavy"].backend.closed


@pytest.mark.parametrize(
    ("refusal", "state"),
    [
        (BackendAway("the scheduler does not answer: connection refused"), "away"),
        (BackendUnfit("tcp://10.0.0.7:1 has Python 3.12.1, the engine has Python 3.11.9"), "unfit"),
    ],
)
def test_a_cluster_that_cannot_be_used_says_why_and_ends_with_one(
    here: Here, scripts: dict[str, Script], refusal: BackendAway, state: str
) -> None:
    scripts["heavy"] = Script()
    scripts["heavy"].refuses = refusal
    done = here.run("pools", "--pool", DASK)
    assert done.code == 1
    assert done.out.splitlines()[-1] == f"heavy is {state}: {refusal.message}"
    (told,) = here.run("pools", "--pool", DASK, "--json").json
    assert (told["state"], told["reason"]) == (state, refusal.message)
    assert scripts["heavy"].backend is not None
    assert scripts["heavy"].backend.closed


def test_a_cluster_without_workers_is_there_and_says_so(
    here: Here, scripts: dict[str, Script]
) -> None:
    scripts["heavy"] = Script(slots=0, workers=0, dashboard="")
    done = here.ok("pools", "heavy", "--pool", DASK)
    assert done.out.endswith("heavy: the cluster has no worker now, so jobs would wait\n")


def test_without_a_server_and_without_a_cluster_there_is_nothing_to_look_at(here: Here) -> None:
    for words in ((), ("gpu", "--pool", DASK)):
        done = here.run("pools", *words)
        assert done.code == 2
        assert "--pool NAME=URL" in done.err
        assert "--server URL" in done.err


def test_a_server_tells_of_pools_that_workers_do(here: Here) -> None:
    with served(here.store) as server:
        at = ("--server", server.url)
        assert "no step of any run asked for a pool" in here.ok("pools", *at).out
        here.write("heavy.yaml", HEAVY)
        server.parts.engine.pools.saw("heavy", "box-1", 1)
        shown = here.ok("pools", *at).out.splitlines()
        assert shown[1].split()[:5] == ["heavy", "workers", "-", "1", "asked"]
        (card,) = here.ok("pools", *at, "--json").json
        assert (card["pool"], card["cluster"]) == ("heavy", None)
        assert here.ok("pools", "heavy", *at, "--json").json == card
        missing = here.run("pools", "haevy", *at)
        assert (missing.code, "no job of a pool 'haevy' was seen" in missing.err) == (2, True)


def test_a_server_is_started_with_its_clusters_and_not_told_of_them_later(here: Here) -> None:
    here.write("hello.yaml", HELLO)
    with served(here.store) as server:
        for words in (("run", "hello.yaml"), ("pools",), ("check", "hello.yaml")):
            done = here.run(*words, "--pool", DASK, "--server", server.url)
            assert (done.code, "start that with --pool" in done.err) == (2, True), words


def test_a_worker_serves_a_pool_by_its_name(here: Here) -> None:
    done = here.run("worker", "--server", "http://127.0.0.1:1", "--pool", DASK)
    assert (done.code, "by its name" in done.err) == (2, True)


def test_a_pool_with_a_cluster_is_fine_without_a_server(
    here: Here, scripts: dict[str, Script]
) -> None:
    here.write("heavy.yaml", HEAVY)
    refused = here.run("run", "heavy.yaml")
    assert refused.code == 2
    assert "--pool heavy=dask://HOST:PORT" in refused.err
    scripts["heavy"] = Script(slots=0)
    assert here.ok("check", "heavy.yaml", "--pool", DASK).out.endswith("no problems\n")


PARENT = f"""{HEAD}metadata: {{name: parent}}
workflow:
  - step: compute
    spec: {{pool: heavy}}
    tool:
      - {{kind: noop}}
      - {{kind: playbook, path: heavy.yaml}}
"""


def test_a_child_run_of_work_that_cannot_ask_for_it_is_refused_before_anything_begins(
    here: Here, scripts: dict[str, Script]
) -> None:
    scripts["heavy"] = Script(slots=0)
    here.write("heavy.yaml", HEAVY)
    here.write("parent.yaml", PARENT)
    for verb in ("check", "run"):
        done = here.run(verb, "parent.yaml", "--pool", DASK)
        assert done.code == 2
        assert "parent.yaml:9" in done.out + done.err
        assert "no-server: step 'compute' starts a child run" in done.out + done.err
        assert "anabranch serve" in done.out + done.err
    assert here.ok("runs", "--json").json == []


def test_a_server_starts_child_runs_of_work_that_asks_it(
    here: Here, scripts: dict[str, Script]
) -> None:
    scripts["heavy"] = Script(slots=0)
    here.write("heavy.yaml", HEAVY)
    here.write("parent.yaml", PARENT)
    for address, code in ((DASK, 0), (f"{DASK}?values=cluster", 2)):
        with served(here.folder / f"{code}.db", pools=address) as server:
            assert here.run("check", "parent.yaml", "--server", server.url).code == code
