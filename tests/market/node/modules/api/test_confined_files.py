"""Files below one folder: every way out is refused, links included, and writes are whole."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from anabranch.market.node.modules.api.confined_files import (
    FileExists,
    PathRefused,
    parts_of,
    read_confined,
    write_confined,
)

BAD_PATHS = [
    "",
    "/etc/passwd",
    "..",
    "../x",
    "a/../../x",
    "a/..",
    "./a",
    "a//b",
    "a/",
    "a\\..\\b",
    "a\0b",
    "a\nb",
    "x" * 256,
    "a/" * 513,
    ".unfinished-write",
]


@pytest.mark.parametrize("path", BAD_PATHS)
def test_a_path_that_could_lead_out_is_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(PathRefused):
        parts_of(path)
    with pytest.raises(PathRefused):
        write_confined(tmp_path / "root", path, b"x", overwrite=True)
    with pytest.raises(PathRefused):
        read_confined(tmp_path / "root", path, 10)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize(
    "where", ["link", "link/x", "folder/link", "folder/link/x", "folder/file/x"]
)
def test_a_link_anywhere_on_the_path_is_refused(
    tmp_path: Path, where: str, overwrite: bool
) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "folder").mkdir(parents=True)
    outside.mkdir()
    (outside / "x").write_text("as it was")
    (root / "link").symlink_to(outside)
    (root / "folder" / "link").symlink_to(outside)
    (root / "folder" / "file").write_text("a file")
    with pytest.raises(PathRefused):
        write_confined(root, where, b"new", overwrite=overwrite)
    with pytest.raises(PathRefused):
        read_confined(root, where, 100)
    assert [path.name for path in outside.iterdir()] == ["x"]
    assert (outside / "x").read_text() == "as it was"


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_link_to_a_file_is_neither_read_nor_written(tmp_path: Path, overwrite: bool) -> None:
    root, secret = tmp_path / "root", tmp_path / "secret"
    root.mkdir()
    secret.write_text("secret")
    (root / "x").symlink_to(secret)
    (root / "dangling").symlink_to(tmp_path / "nothing")
    for name in ("x", "dangling"):
        with pytest.raises(PathRefused):
            read_confined(root, name, 100)
        with pytest.raises(PathRefused):
            write_confined(root, name, b"new", overwrite=overwrite)
    assert secret.read_text() == "secret"
    assert not (tmp_path / "nothing").exists()


def test_a_root_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "root").symlink_to(tmp_path / "outside")
    with pytest.raises(PathRefused):
        write_confined(tmp_path / "root", "x", b"new", overwrite=True)
    assert list((tmp_path / "outside").iterdir()) == []


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(PathRefused):
            read_confined(tmp_path, name, 10)
        with pytest.raises(PathRefused):
            write_confined(tmp_path, name, b"x", overwrite=True)


def test_a_file_is_written_whole_and_for_its_owner_alone(tmp_path: Path) -> None:
    assert write_confined(tmp_path, "a/b/c.txt", b"one", overwrite=False)
    assert not write_confined(tmp_path, "a/b/c.txt", b"one", overwrite=False)
    with pytest.raises(FileExists):
        write_confined(tmp_path, "a/b/c.txt", b"two", overwrite=False)
    assert read_confined(tmp_path, "a/b/c.txt", 3) == b"one"
    assert write_confined(tmp_path, "a/b/c.txt", b"twice", overwrite=True)
    assert (tmp_path / "a/b/c.txt").read_bytes() == b"twice"
    assert stat.S_IMODE((tmp_path / "a/b/c.txt").stat().st_mode) == 0o600
    assert [path.name for path in (tmp_path / "a/b").iterdir()] == ["c.txt"]


def test_a_write_that_was_cut_off_leaves_nothing_that_stays(tmp_path: Path) -> None:
    (tmp_path / ".unfinished-write").write_text("half")
    assert write_confined(tmp_path, "x", b"whole", overwrite=False)
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_missing_file_is_missing_and_a_large_one_is_not_read(tmp_path: Path) -> None:
    assert read_confined(tmp_path, "nothing/here", 10) is None
    assert read_confined(tmp_path / "no-root", "x", 10) is None
    (tmp_path / "x").write_bytes(b"12345")
    with pytest.raises(FileExists):
        read_confined(tmp_path, "x", 4)
