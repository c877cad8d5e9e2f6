"""The shared folder of values: by hash, whole or not at all, and swept of what nobody uses."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import pytest

from anabranch.errors import InputError
from anabranch.pools.values.folder import KEPT_SECONDS, FolderError, ValuesFolder
from anabranch.work.values.payloads import hash_of

CONTENT = b'{"large": "value"}'
HASH = hash_of(CONTENT)


def files_in(folder: Path) -> list[str]:
    return sorted(str(one.relative_to(folder)) for one in folder.rglob("*") if one.is_file())


@pytest.fixture(params=["path", "file", "fsspec", "bucket"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "path":
        return str(tmp_path)
    if request.param == "bucket":
        pytest.importorskip("fsspec")
        return f"memory://{tmp_path.name}/values"
    scheme = "file" if request.param == "file" else "local"
    if scheme == "local":
        pytest.importorskip("fsspec")
    return f"{scheme}://{tmp_path}"


def test_a_value_is_found_by_its_hash(url: str) -> None:
    async def scenario() -> None:
        folder, other = ValuesFolder(url), ValuesFolder(url)
        assert await folder.get(HASH) is None
        assert not await folder.use(HASH)
        assert await folder.put(CONTENT) == HASH
        assert await folder.put(CONTENT) == HASH, "once more changes nothing"
        assert await other.use(HASH)
        assert await other.get(HASH) == CONTENT

    asyncio.run(scenario())


def test_a_damaged_file_counts_as_none_and_can_be_mended(tmp_path: Path) -> None:
    async def scenario() -> None:
        folder = ValuesFolder(str(tmp_path))
        await folder.put(CONTENT)
        (file,) = [one for one in tmp_path.rglob("*") if one.is_file()]
        assert str(file.relative_to(tmp_path)) == f"{HASH[:2]}/{HASH[2:4]}/{HASH}"
        file.write_bytes(CONTENT[:5])
        assert await folder.get(HASH) is None
        await folder.mend(CONTENT)
        assert await folder.get(HASH) == CONTENT

    asyncio.run(scenario())


@pytest.mark.parametrize("name", ["../../../../dev/zero", "/dev/zero", HASH[:63], f"{HASH}\n", ""])
def test_what_a_cluster_calls_a_value_is_no_path_of_this_machine(url: str, name: str) -> None:
    async def scenario() -> None:
        for ask in (ValuesFolder(url).get, ValuesFolder(url).use):
            with pytest.raises(InputError, match="is not the hash of a value"):
                await ask(name)

    asyncio.run(scenario())


def test_what_stands_for_a_value_is_read_as_far_as_values_go(url: str) -> None:
    async def scenario() -> None:
        folder = ValuesFolder(url, len(CONTENT))
        large = hash_of(CONTENT + b" ")
        assert await folder.put(CONTENT) == HASH
        assert await folder.put(CONTENT + b" ") == large
        assert await folder.get(HASH) == CONTENT
        with pytest.raises(InputError, match="more than 18 bytes"):
            await folder.get(large)

    asyncio.run(scenario())


def test_a_device_or_a_pipe_in_the_place_of_a_value_is_not_opened(tmp_path: Path) -> None:
    """One has no end, and nobody may ever write to the other."""

    async def scenario() -> None:
        folder = ValuesFolder(str(tmp_path))
        await folder.put(CONTENT)
        (file,) = [one for one in tmp_path.rglob("*") if one.is_file()]
        for device in (True, False):
            file.unlink()
            if device:
                file.symlink_to("/dev/zero")
            else:
                os.mkfifo(file)
            with pytest.raises(InputError, match="only regular files are read"):
                await folder.get(HASH)

    asyncio.run(scenario())


def test_a_file_appears_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_file: Any) -> None:
        raise OSError(28, "No space left on device")

    async def scenario() -> None:
        folder = ValuesFolder(str(tmp_path))
        with pytest.raises(FolderError, match="No space left on device"):
            await folder.put(CONTENT)
        assert files_in(tmp_path) == [], "nothing is left of the attempt"
        assert await folder.get(HASH) is None

    monkeypatch.setattr(os, "fsync", full)
    asyncio.run(scenario())


def test_sweeping_removes_what_nobody_used_for_long_and_nothing_else(tmp_path: Path) -> None:
    async def scenario() -> None:
        folder = ValuesFolder(str(tmp_path))
        old, needed, young = [await folder.put(f"value {n}".encode()) for n in range(3)]
        unfinished = tmp_path / old[:2] / old[2:4] / f".{old}.{'0' * 16}"
        unfinished.write_bytes(b"half")
        foreign = [tmp_path / "notes.txt", tmp_path / "ab" / "cd" / "not-a-hash"]
        for file in foreign:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(b"of somebody else")
        long_ago = time.time() - 2 * KEPT_SECONDS
        for file in tmp_path.rglob("*"):
            if file.is_file() and young not in file.name:
                os.utime(file, (long_ago, long_ago))
        assert await folder.sweep([needed]) == 2
        assert await folder.get(old) is None
        assert await folder.get(needed) == b"value 1"
        assert await folder.get(young) == b"value 2"
        assert not unfinished.exists()
        assert all(file.exists() for file in foreign)

    asyncio.run(scenario())


def test_a_value_that_is_used_again_stays(tmp_path: Path) -> None:
    async def scenario() -> None:
        folder = ValuesFolder(str(tmp_path))
        sha256 = await folder.put(CONTENT)
        (file,) = [one for one in tmp_path.rglob("*") if one.is_file()]
        long_ago = time.time() - 2 * KEPT_SECONDS
        os.utime(file, (long_ago, long_ago))
        assert await folder.use(sha256)
        assert await folder.sweep() == 0
        assert await folder.get(sha256) == CONTENT

    asyncio.run(scenario())


def test_sweeping_a_bucket_removes_what_is_old_enough() -> None:
    pytest.importorskip("fsspec")

    async def scenario() -> None:
        folder = ValuesFolder("memory://sweeping/values")
        sha256 = await folder.put(CONTENT)
        assert await folder.sweep() == 0
        assert await folder.sweep([sha256], older_than_seconds=0) == 0
        assert await folder.sweep(older_than_seconds=0) == 1
        assert await folder.get(sha256) is None

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("values/here", "absolute path"),
        ("warp9://user:sesame-open@host/x", "fsspec cannot open a warp9:// folder"),
    ],
)
def test_a_folder_that_cannot_be_is_refused_at_once(url: str, said: str) -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(InputError, match=said) as refused:
        ValuesFolder(url)
    assert "sesame" not in str(refused.value)


def test_a_folder_that_does_not_work_says_so_without_its_url(tmp_path: Path) -> None:
    blocked = tmp_path / "sesame-open"
    blocked.write_bytes(b"a file is in the way")

    async def scenario() -> None:
        folder = ValuesFolder(str(blocked))
        with pytest.raises(FolderError) as refused:
            await folder.put(CONTENT)
        assert "sesame" not in f"{refused.value} {folder!r}"
        assert refused.value.retryable

    asyncio.run(scenario())
