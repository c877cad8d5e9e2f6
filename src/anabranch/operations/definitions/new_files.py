"""Files that are not there yet, written all or none: what `examples --copy` and `init` make."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from anabranch.errors import InputError


class NewFile(NamedTuple):
    content: bytes
    executable: bool = False


def write_new(into: Path, files: Mapping[str, NewFile]) -> list[Path]:
    """Write these files below a folder. One that is there already is refused, and then all are."""
    targets = {into / name: file for name, file in files.items()}
    there = [each for each in targets if os.path.lexists(each)]
    if there:
        more = f" and {len(there) - 1} more" if len(there) > 1 else ""
        message = f"{there[0]} is there already{more}: nothing was written"
        raise InputError(f"{message}; name another folder, or move it away", code="exists")
    made: list[Path] = []
    try:
        for target, file in targets.items():
            _make_folders(target.parent, made)
            _write(target, file, made)
    except OSError as error:
        _take_back(made)
        raise InputError(f"{error.filename}: {error.strerror}", code="no_file") from None
    return list(targets)


def _make_folders(folder: Path, made: list[Path]) -> None:
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir()
        made.append(each)
    folder.mkdir(exist_ok=True)  # an error where it is a file


def _write(target: Path, file: NewFile, made: list[Path]) -> None:
    with target.open("xb") as opened:
        made.append(target)
        opened.write(file.content)
    # Not even a group may write: it is code, and `anabranch.toml` would be refused.
    mode = target.stat().st_mode & ~0o022
    target.chmod(mode | 0o111 if file.executable else mode)


def _take_back(made: list[Path]) -> None:
    """What was made goes again; what somebody has put beside it in the meantime stays."""
    for each in reversed(made):
        with suppress(OSError):
            each.rmdir() if each.is_dir() else each.unlink()
