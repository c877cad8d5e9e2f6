"""Keys whose requests have no sure end: one effect all the same, at whichever server they are
repeated, and no repeat that waits for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from anabranch.errors import AnabranchError, InputError, NotFound, StoreError
from anabranch.runtime.cluster import remote_runs
from anabranch.store.cluster_ports import Cluster
from anabranch.store.outages import AWAY
from anabranch.store.ports import Batch, HeadFilter
from anabranch.surfaces.http.guard import idempotency
from anabranch.surfaces.http.guard.idempotency import BATCHER, REPEATS, REPLAYED
from hangs import HANG_SECONDS

from ..support import FAILING, HELLO, Client, gated, run, serving
from ..test_two_servers import owned, two

KEY = {"Idempotency-Key": "k"}
APPENDS = {"values": {"count": 1}, "reducer": "append"}


def stop_mail(client: Client) -> Callable[[], None]:
    """Let this server take no messages; returns how it does again."""
    mailbox: Any = client.parts.engine._mailbox
    mailbox.look = list

    def go_on() -> None:
        del mailbox.look
        mailbox._more = True

    return go_on


def loses(client: Client, number: int, *, written: bool) -> list[int]:
    """The database goes away with this write about a key, before or after it; counts writes."""
    batcher: Any = client.app[BATCHER]
    real, writes = batcher.write, [0]

    async def write(work: Any) -> Any:
        writes[0] += 1
        lost = writes[0] == number
        if lost and not written:
            raise away()
        answer = await real(work)
        if lost:
            raise away()
        return answer

    batcher.write = write
    return writes


def away() -> StoreError:
    return StoreError("the server has hung up", code=AWAY)


def cluster_of(client: Client) -> Cluster:
    assert client.parts.store.cluster is not None
    return client.parts.store.cluster


async def started_at(client: Client, definition: Any) -> str:
    """A run that this server owns."""
    while True:
        name = await client.start(definition)
        if cluster_of(client).place(name) in owned(client):
            return name


def test_a_start_that_its_owner_takes_late_begins_one_run_however_often_it_is_repeated(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_runs, "ANSWER_SECONDS", 0.3)

    async def work() -> None:
        async with two(postgres) as (here, there):
            go_on = stop_mail(there)
            late: list[dict[str, str]] = []
            sent = 0
            while not late:
                sent += 1
                key = {"Idempotency-Key": f"k{sent}"}
                reply = await here.post("/runs", {"definition": HELLO}, headers=key)
                if reply.status == 504:
                    assert reply.code == "no_answer"
                    late.append(key)
            again = await here.post("/runs", {"definition": HELLO}, headers=late[0])
            assert again.code == "no_answer"
            go_on()
            monkeypatch.setattr(remote_runs, "ANSWER_SECONDS", 60.0)
            last = await here.post("/runs", {"definition": HELLO}, headers=late[0])
            assert last.status == 201, last.text
            while any(one.waiting for one in cluster_of(here).partition_lags().values()):
                await asyncio.sleep(0.02)
            assert len(here.parts.store.heads(HeadFilter(limit=100))) == sent

    run(work())


def test_a_patch_that_its_owner_takes_late_is_repeated_at_no_server(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_runs, "ANSWER_SECONDS", 0.3)

    async def work() -> None:
        async with two(postgres) as (here, there):
            name = await started_at(there, gated())
            go_on = stop_mail(there)
            first = await here.post(f"/runs/{name}/patch", APPENDS, headers=KEY)
            assert first.code == "no_answer"
            for each in (here, there):
                again = await each.post(f"/runs/{name}/patch", APPENDS, headers=KEY)
                assert (again.status, again.code) == (409, "unknown_outcome")
            go_on()
            while here.parts.verbs.read.state(name).ctx.get("count") != [1]:
                await asyncio.sleep(0.02)

    run(work())


def test_a_request_that_is_cut_off_keeps_its_key() -> None:
    async def work() -> None:
        async with serving() as client:
            begun = asyncio.Event()
            real: Any = client.parts.verbs.start

            async def slow(*given: Any, **more: Any) -> str:
                name: str = await real(*given, **more)
                begun.set()
                await asyncio.Event().wait()
                return name

            client.parts.verbs.start = slow  # type: ignore[method-assign]
            body = {"definition": HELLO}
            before = asyncio.all_tasks()
            first = asyncio.create_task(client.post("/runs", body, headers=KEY))
            await begun.wait()
            (handler,) = (
                task
                for task in asyncio.all_tasks() - before - {first}
                if "start" in getattr(task.get_coro(), "__qualname__", "")
            )
            handler.cancel()
            with pytest.raises(Exception, match=r"."):
                await first
            client.parts.verbs.start = real  # type: ignore[method-assign]
            again = await client.post("/runs", body, headers=KEY)
            assert again.status == 201
            assert len((await client.get("/runs")).json["items"]) == 1

    run(work())


def test_a_repeat_elsewhere_waits_only_so_long_for_a_server_that_lives_and_does_not_answer(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idempotency, "PATIENCE_SECONDS", 0.5)

    async def work() -> None:
        async with two(postgres) as (here, there):
            for path, body in (
                ("/runs", {"definition": HELLO}),
                (f"/runs/{await here.start(gated())}/patch", APPENDS),
            ):
                with monkeypatch.context() as patch:
                    patch.setattr(here.parts.store, "keep_answer", lambda _kept: False)
                    first = await here.post(path, body, headers=KEY | {"X-Actor": path})
                    assert first.status < 300, first.text
                    while here.app[REPEATS].under_way:
                        await asyncio.sleep(0.01)
                again = await there.post(path, body, headers=KEY | {"X-Actor": path})
                if path == "/runs":  # its id is known: nothing is done twice
                    assert (again.status, again.json) == (201, first.json)
                else:
                    assert (again.status, again.code) == (503, "request_under_way")
                    assert int(again.headers["Retry-After"]) > 0

    run(work())


@pytest.mark.parametrize("loss", [0, 2], ids=["the store is there", "the store is away longer"])
def test_a_start_without_a_sure_end_is_done_again_elsewhere_without_patience(
    postgres: str, loss: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server that was at it says in the store that it has given up."""
    monkeypatch.setattr(idempotency, "PATIENCE_SECONDS", HANG_SECONDS)

    async def work() -> None:
        async with two(postgres) as (here, there):
            with monkeypatch.context() as patch:
                patch.setattr(here.parts.verbs, "start", goes_away)
                loses(here, loss, written=False)
                lost = await here.post("/runs", {"definition": HELLO}, headers=KEY)
                assert (lost.status, lost.code) == (503, AWAY)
            while here.app[REPEATS].under_way:
                await asyncio.sleep(0.01)
            with monkeypatch.context() as patch:
                patch.setattr(cluster_of(there), "servers", not_asked)
                again = await there.post("/runs", {"definition": HELLO}, headers=KEY)
                assert again.status == 201, again.text
            third = await here.post("/runs", {"definition": HELLO}, headers=KEY)
            assert (third.status, third.json) == (201, again.json)
            assert len(there.parts.store.heads(HeadFilter(limit=100))) == 1

    run(work())


async def goes_away(*_given: Any, **_more: Any) -> Any:
    raise away()


def not_asked() -> Any:
    raise AssertionError("whether the first server lives need not be asked")


@pytest.mark.parametrize("written", [True, False])
def test_an_answer_is_kept_when_the_database_is_back(postgres: str, written: bool) -> None:
    async def work() -> None:
        async with two(postgres) as (here, there):
            name = await here.start(gated())
            writes = loses(here, 2, written=written)
            done = await here.post(f"/runs/{name}/patch", APPENDS, headers=KEY)
            assert done.status == 200, done.text
            again = await there.post(f"/runs/{name}/patch", APPENDS, headers=KEY)
            assert (again.status, again.headers[REPLAYED]) == (200, "true")
            assert writes[0] >= 3

    run(work())


@pytest.mark.parametrize("written", [True, False])
def test_a_key_that_was_perhaps_taken_as_the_database_went_away_is_free_again(
    postgres: str, written: bool
) -> None:
    async def work() -> None:
        async with two(postgres) as (here, there):
            name = await here.start(gated())
            loses(here, 1, written=written)
            refused = await here.post(f"/runs/{name}/patch", APPENDS, headers=KEY)
            assert (refused.status, refused.code) == (503, AWAY)
            for each in (here, there):
                done = await each.post(f"/runs/{name}/patch", APPENDS, headers=KEY)
                assert done.status == 200, done.text
            assert here.parts.verbs.read.state(name).ctx["count"] == [1]

    run(work())


@pytest.mark.parametrize("written", [True, False])
def test_a_key_whose_request_was_refused_is_free_when_the_database_is_back(
    postgres: str, written: bool
) -> None:
    async def work() -> None:
        async with two(postgres) as (here, there):
            loses(here, 2, written=written)
            wrong = await here.post("/runs", {"definition": "nothing"}, headers=KEY)
            assert (wrong.status, wrong.code) == (422, "definition")
            while here.app[REPEATS].under_way:
                await asyncio.sleep(0.02)
            right = await there.post("/runs", {"definition": HELLO}, headers=KEY)
            assert right.status == 201

    run(work())


def test_a_redrive_that_began_meanwhile_is_answered_with_its_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second try finds no run; what the first had asked for begins before its own start."""

    async def work() -> None:
        async with serving() as client:
            name = await client.start(FAILING)
            await client.ended(name)
            real, given = client.parts.verbs.redrive, []

            async def lost(run: str, *, new: str | None = None, **more: Any) -> str:
                given.append(new)
                if len(given) == 1:
                    raise AnabranchError("not heard of", code="no_answer")
                await real(run, new=new, **more)
                return await real(run, new=new, **more)

            monkeypatch.setattr(client.parts.verbs, "redrive", lost)
            first = await client.post(f"/runs/{name}/redrive", headers=KEY)
            assert first.status == 504
            for _ in range(2):
                again = await client.post(f"/runs/{name}/redrive", headers=KEY)
                assert again.status == 201, again.text
                assert again.json == {"run": given[0], "origin": name}
            assert given[0] == given[1]
            assert len(given) == 2

    run(work())


@pytest.mark.parametrize(
    ("error", "free"),
    [
        (NotFound("there is no run"), True),
        (InputError("no"), True),
        (StoreError("full", code="store_full"), True),
        (AnabranchError("not heard of", code="no_answer"), False),
        (AnabranchError("closed", code="engine_closed"), False),
        (RuntimeError("a defect"), False),
    ],
)
def test_on_a_file_a_key_is_free_again_where_nothing_was_done_for_sure(
    error: Exception, free: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        async with serving() as client:
            name = await client.start(gated())

            async def failing(*_given: Any) -> None:
                raise error

            with monkeypatch.context() as patch:
                patch.setattr(client.parts.verbs, "send", failing)
                assert (await client.post(f"/runs/{name}/patch", APPENDS, headers=KEY)).status > 399
            again = await client.post(f"/runs/{name}/patch", APPENDS, headers=KEY)
            assert again.status == (200 if free else 409), again.text

    run(work())


def test_a_start_on_a_store_of_its_own_writes_run_key_and_answer_in_one_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So no crash can leave one without the other."""

    async def work() -> None:
        async with serving() as client:
            writes = loses(client, 0, written=False)
            real, batches = client.parts.store.commit, list[Batch]()

            def commit(batch: Batch) -> None:
                batches.append(batch)
                real(batch)

            monkeypatch.setattr(client.parts.store, "commit", commit)
            begun = await client.post("/runs", {"definition": HELLO}, headers=KEY)
            assert begun.status == 201, begun.text
            assert writes == [0]
            first = next(each for each in batches if each.commits)
            assert [each.head.run for each in first.commits] == [begun.json["run"]]
            (left,) = first.requests
            assert left.kept is not None
            assert (left.kept.status, left.kept.answer) == (201, begun.text.encode())
            again = await client.post("/runs", {"definition": HELLO}, headers=KEY)
            assert (again.json, again.headers[REPLAYED]) == (begun.json, "true")
            other = await client.post("/runs", {"definition": gated()}, headers=KEY)
            assert (other.status, other.code) == (409, "idempotency")

    run(work())


@pytest.mark.parametrize(
    ("error", "free"),
    [
        (InputError("no"), True),
        (AnabranchError("not heard of", code="no_answer"), False),
        (RuntimeError("a defect"), False),
    ],
)
def test_a_start_without_a_sure_end_keeps_its_key_and_the_id_of_its_run(
    error: Exception, free: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        async with serving() as client:
            given: list[str] = []

            async def failing(*_given: Any, run: str, **_more: Any) -> str:
                given.append(run)
                raise error

            with monkeypatch.context() as patch:
                patch.setattr(client.parts.verbs, "start", failing)
                lost = await client.post("/runs", {"definition": HELLO}, headers=KEY)
                assert lost.status > 399
            other = await client.post("/runs", {"definition": gated()}, headers=KEY)
            assert other.status == (201 if free else 409), other.text
            for _ in range(2):
                again = await client.post("/runs", {"definition": HELLO}, headers=KEY)
                assert again.status == (409 if free else 201), again.text
                assert free or again.json["run"] == given[0]

    run(work())


def test_two_starts_with_one_key_at_the_same_time_begin_one_run() -> None:
    async def work() -> None:
        async with serving() as client:
            both = [client.post("/runs", {"definition": HELLO}, headers=KEY) for _ in range(5)]
            replies = await asyncio.gather(*both)
            assert {each.status for each in replies} == {201}
            assert len({each.json["run"] for each in replies}) == 1
            assert len((await client.get("/runs")).json["items"]) == 1

    run(work())
