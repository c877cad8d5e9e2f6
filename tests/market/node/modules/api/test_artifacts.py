"""Artifacts of modules: written once, read back, below their own folder and nowhere else."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

import pytest

from anabranch.market.node.api import Answer
from anabranch.market.node.errors import NodeError
from anabranch.store.memory.store import MemoryStore

from ..support import Hosted, hosted, in_process, run
from .test_confined_files import BAD_PATHS

CONFIGS = [in_process("arca", enabled=False), in_process("dator", enabled=False)]


async def write(node: Hosted, path: str = "out/a.txt", as_: str = "arca", **more: Any) -> Answer:
    body = {
        "schema_version": "v1",
        "capability_id": "artifact_write",
        "path": path,
        "content_type": "text/plain",
        **more,
    }
    return await node.ask("POST", "/v1/module/artifact/write", body, as_=as_)


async def read(node: Hosted, path: str = "out/a.txt", as_: str = "arca") -> Answer:
    body = {"schema_version": "v1", "capability_id": "artifact_read", "path": path}
    return await node.ask("POST", "/v1/module/artifact/read", body, as_=as_)


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def test_a_written_artifact_is_read_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with hosted(configs=CONFIGS, data_dir=tmp_path) as node:
            answer = await write(node, bytes_base64=b64(b"hello"))
            raw = hashlib.sha256(b"hello").digest()
            digest = "sha256:" + base64.urlsafe_b64encode(raw).decode().rstrip("=")
            assert answer.status == 200
            assert answer.body.pop("artifact_id").startswith("artifact:")
            assert answer.body == {
                "schema_version": "v1",
                "outcome": "written",
                "path": "out/a.txt",
                "content_type": "text/plain",
                "digest": digest,
                "size_bytes": 5,
            }
            found = (await read(node)).body
            assert (found["outcome"], found["digest"]) == ("found", digest)
            assert (found["bytes_base64"], found["content_type"]) == (b64(b"hello"), "text/plain")
        assert (tmp_path / "middleware/arca/output/out/a.txt").read_bytes() == b"hello"

    run(scenario())


def test_each_module_has_a_folder_of_its_own(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with hosted(configs=CONFIGS, data_dir=tmp_path) as node:
            await write(node, bytes_base64=b64(b"of arca"))
            assert (await read(node, as_="dator")).body["outcome"] == "missing"
            assert (await write(node, as_="dator", json={"b": 1, "a": 2})).body[
                "outcome"
            ] == "written"
        assert (tmp_path / "middleware/dator/output/out/a.txt").read_bytes() == b'{"a":2,"b":1}'

    run(scenario())


@pytest.mark.parametrize(
    ("first", "second", "status", "outcome"),
    [
        ({}, {}, 200, "already_present"),
        ({}, {"bytes_base64": b64(b"other")}, 409, "rejected_conflict"),
        ({}, {"bytes_base64": b64(b"other"), "overwrite": True}, 200, "written"),
        ({"idempotency_key": "k"}, {"idempotency_key": "k"}, 200, "already_present"),
        (
            {"idempotency_key": "k"},
            {"idempotency_key": "k", "bytes_base64": b64(b"other"), "overwrite": True},
            409,
            "rejected_conflict",
        ),
        ({"idempotency_key": "k"}, {"idempotency_key": "k", "path": "b"}, 409, "rejected_conflict"),
        ({"idempotency_key": "k"}, {"idempotency_key": "l", "path": "b"}, 200, "written"),
    ],
)
def test_writing_again(
    tmp_path: Path, first: dict[str, Any], second: dict[str, Any], status: int, outcome: str
) -> None:
    async def scenario() -> None:
        async with hosted(configs=CONFIGS, data_dir=tmp_path) as node:
            await write(node, **{"bytes_base64": b64(b"one"), **first})
            answer = await write(node, **{"bytes_base64": b64(b"one"), **second})
            assert (answer.status, answer.body["outcome"]) == (status, outcome)
            if status == 409:
                assert (await read(node)).body["bytes_base64"] == b64(b"one")

    run(scenario())


@pytest.mark.parametrize("path", BAD_PATHS)
def test_a_path_that_could_lead_out_changes_nothing(tmp_path: Path, path: str) -> None:
    async def scenario() -> None:
        store = MemoryStore()
        async with hosted(configs=CONFIGS, store=store, data_dir=tmp_path) as node:
            for answer in (await write(node, path, bytes_base64=""), await read(node, path)):
                assert (answer.status, answer.body["outcome"]) == (400, "rejected_path")
        assert not (tmp_path / "middleware/arca/output").exists()
        assert store.node_streams is not None
        assert store.node_streams.stream_names() == []

    run(scenario())


def test_a_link_in_the_output_folder_is_not_followed(tmp_path: Path) -> None:
    async def scenario() -> None:
        output = tmp_path / "middleware/arca/output"
        output.mkdir(parents=True)
        (output / "out").symlink_to(tmp_path)
        async with hosted(configs=CONFIGS, data_dir=tmp_path) as node:
            for answer in (await write(node, bytes_base64=""), await read(node, "out/authtok")):
                assert (answer.status, answer.body["outcome"]) == (400, "rejected_path")
                assert node.part.tokens.control() not in str(answer.body)

    run(scenario())


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ({"bytes_base64": b64(b"x"), "json": 1}, 400),
        ({"bytes_base64": "not base64!"}, 400),
        ({"bytes_base64": "YQ"}, 400),
        ({"bytes_base64": b64(b"\xff\xfe")[:-1] + "_"}, 400),
        ({"json": 1, "content_type": ""}, 400),
        ({"json": 1, "overwrite": "yes"}, 400),
        ({"json": "x" * 8 * 1024 * 1024}, 413),
    ],
)
def test_bad_content_is_refused(tmp_path: Path, body: dict[str, Any], status: int) -> None:
    async def scenario() -> None:
        async with hosted(configs=CONFIGS, data_dir=tmp_path) as node:
            answer = await write(node, **body)
            assert (answer.status, answer.body["outcome"]) == (status, "rejected_other")
            assert (await read(node)).body["outcome"] == "missing"

    run(scenario())


def test_a_file_whose_event_was_lost_is_completed_by_the_same_write(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with hosted(configs=CONFIGS, data_dir=tmp_path) as node:
            await write(node, bytes_base64=b64(b"one"))
        async with hosted(configs=CONFIGS, data_dir=tmp_path) as node:  # with an empty store
            answer = await write(node, bytes_base64=b64(b"one"))
            assert answer.body["outcome"] == "already_present"
            assert (await read(node)).body["content_type"] == "text/plain"

    run(scenario())


def test_a_node_without_a_data_folder_says_so() -> None:
    async def scenario() -> None:
        async with hosted(configs=CONFIGS) as node:
            answer = await write(node, json=1)
            assert (answer.status, answer.body["code"]) == (503, "no_data_dir")

    run(scenario())


def test_the_host_reads_what_a_module_has_written_and_nothing_else(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with hosted(configs=CONFIGS, data_dir=tmp_path) as node:
            await write(node, bytes_base64=b64(b"one"))
            assert await node.part.read_artifact("arca", "out/a.txt") == b"one"
            for module, path, status in (
                ("dator", "out/a.txt", 404),
                ("arca", "../host-authtok", 400),
            ):
                with pytest.raises(NodeError) as refused:
                    await node.part.read_artifact(module, path)
                assert refused.value.status == status

    run(scenario())
