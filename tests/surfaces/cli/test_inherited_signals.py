"""What a shell without a terminal starts in the background ignores SIGINT: it is heard here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hangs import HANG_SECONDS

STRIKES_ITSELF = """
apiVersion: noetl.io/v10
kind: Playbook
metadata: {name: struck}
workflow:
  - step: strike
    tool: {kind: shell, command: "kill -INT $$; echo survived"}
"""


@pytest.mark.slow
def test_neither_a_command_nor_its_work_ignores_what_its_shell_ignored(tmp_path: Path) -> None:
    (tmp_path / "struck.yaml").write_text(STRIKES_ITSELF)
    command = [sys.executable, "-m", "anabranch", "run", "struck.yaml", "--json"]
    done = subprocess.run(
        ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *command],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
        env=os.environ,
    )
    assert "survived" not in done.stdout
    assert f"{-signal.SIGINT}" in done.stdout, done
    assert done.returncode == 1
