"""What a person gets who installs the wheel, without the repository beside it."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from hangs import HANG_SECONDS

ROOT = Path(__file__).parent.parent


def run(words: list[str], cwd: Path, more: Mapping[str, str]) -> str:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("ANABRANCH_", "PYTEST_"))}
    done = subprocess.run(
        [sys.executable, *words],
        cwd=cwd,
        env={**env, **more},
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a wheel that was just built, as an installation has them."""
    folder = tmp_path_factory.mktemp("wheel")
    run(["-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], ROOT, {})
    (wheel,) = folder.glob("*.whl")
    place = folder / "site-packages"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place)
    return place


@pytest.mark.slow
def test_the_wheel_has_every_example(installed: Path) -> None:
    def files(folder: Path) -> dict[str, bytes]:
        found = [each for each in folder.rglob("*") if each.is_file()]
        return {
            each.relative_to(folder).as_posix(): each.read_bytes()
            for each in found
            if "__pycache__" not in each.parts
        }

    shipped = files(installed / "anabranch" / "examples")
    assert shipped == files(ROOT / "examples")
    assert "orchestration/rules/ORDER.json" in shipped


@pytest.mark.slow
def test_an_example_of_the_wheel_is_copied_and_runs(installed: Path, tmp_path: Path) -> None:
    env = {"PYTHONPATH": str(installed)}
    told = run(["-m", "anabranch", "examples", "hello", "--copy", "mine"], tmp_path, env)
    assert told.split() == [str(Path("mine") / "hello.yaml")]
    where = run(["-c", "import anabranch; print(anabranch.__file__)"], tmp_path, env)
    assert Path(where.strip()).is_relative_to(installed)
    words = ["-m", "anabranch", "run", "mine/hello.yaml", "--input", "name=Ada", "--json"]
    assert '"status": "completed"' in run(words, tmp_path, env)
