"""`anabranch` as `quick_commands` forks it: with the folder it is in at the head of the path, and
with streams that are written at once where the environment asks for that."""

from __future__ import annotations

import io
import os
import sys

from anabranch.surfaces.cli.main import main

sys.argv[0] = "anabranch"
sys.path[0] = os.getcwd()
if os.environ.get("PYTHONUNBUFFERED"):
    sys.stdout = io.TextIOWrapper(open(1, "wb", 0, closefd=False), write_through=True)  # noqa: SIM115
if "QUICK_PYTHON" in os.environ:
    sys.executable = os.environ["QUICK_PYTHON"]
main()
