"""What a module prints is kept: bounded, and without a secret of the node."""

from __future__ import annotations

import os
from pathlib import Path

from anabranch.market.node.modules.process import LOG_BYTES, ModuleLog


def test_a_log_is_bounded_and_holds_no_secret_however_it_is_cut(tmp_path: Path) -> None:
    secret = "s3cr3t" * 7
    path = tmp_path / "module.log"
    log = ModuleLog(path, [secret])
    text = ("x" * 9000 + secret + "y" * 100 + "\n" + secret + "\n").encode() * 3
    for at in range(0, len(text), 7):
        log.add(text[at : at + 7])
    log.finish()
    written = path.read_text()
    assert secret not in written
    assert written.count("[redacted]") == 6
    assert written.replace("[redacted]", secret).encode() == text
    for _ in range(3):
        log.add(b"z" * (LOG_BYTES // 2) + b"\n")
    assert path.stat().st_size <= LOG_BYTES
    assert sorted(one.name for one in tmp_path.iterdir()) == ["module.log", "module.log.1"]


def test_a_log_that_became_a_pipe_blocks_nothing(tmp_path: Path) -> None:
    path = tmp_path / "module.log"
    log = ModuleLog(path, [])
    os.mkfifo(path)
    log.add(b"said\n")
    path.unlink()
    log.add(b"and again\n")
    assert path.read_bytes() == b"and again\n"
