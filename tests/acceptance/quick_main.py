"""`anabranch` as `quick_commands` forks it: with the folder it is in at the head of the path."""

from __future__ import annotations

import os
import sys

from anabranch.surfaces.cli.main import main

sys.argv[0] = "anabranch"
sys.path[0] = os.getcwd()
if "QUICK_PYTHON" in os.environ:
    sys.executable = os.environ["QUICK_PYTHON"]
main()
