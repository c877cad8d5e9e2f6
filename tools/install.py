"""`python tools/install.py LOCK`: install exactly what a lock names, and say how far it is.

It runs before anything is installed, so it needs nothing but Python.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PIP = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
TOLD_EVERY = 20  # packages, where the screen is no terminal


def main() -> int:
    lock = Path(sys.argv[1])
    count = len(re.findall(r"^\S+==", lock.read_text(), re.MULTILINE))
    print(f"installing what {lock} names, at most {count} packages", flush=True)
    command = [*PIP, "--progress-bar", "off", "--require-hashes", "--requirement", str(lock)]
    pip = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert pip.stdout is not None
    said = []
    done = 0
    for line in pip.stdout:
        said.append(line)
        if found := re.match(
            r"(?:Collecting|Processing|Requirement already satisfied:) (\S+)", line
        ):
            done += 1
            name = re.split(r"==|-\d", Path(found[1]).name)[0]
            _tell(f"{done:4} of {count}: {name}", is_last=False, often=done % TOLD_EVERY == 0)
        elif line.startswith("Installing collected"):
            _tell(f"{done:4} packages are here; unpacking them", is_last=True, often=True)
    if pip.wait():
        print("".join(said[-20:]))
    return pip.returncode


def _tell(text: str, *, is_last: bool, often: bool) -> None:
    if sys.stdout.isatty():
        print(f"\r{text:<60}", end="\n" if is_last else "", flush=True)
    elif often:
        print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
