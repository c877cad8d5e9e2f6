"""`python -m tools.site [FOLDER]`: build the site, strictly: a warning is an error."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tools.site.reference import PAGES

ROOT = Path(__file__).parents[2]


def build(folder: Path) -> Path:
    """The site in `folder/site`; raises `CalledProcessError` where something is wrong with it."""
    write_pages(folder / "docs")
    config = yaml.safe_dump(configuration(), sort_keys=False)
    (folder / "mkdocs.yml").write_text(config, encoding="utf-8")
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "site"


def configuration() -> dict[str, Any]:
    """What `mkdocs.yml` says, with every decision in the navigation."""
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    config |= {"docs_dir": "docs", "site_dir": "site"}
    (decisions,) = (part["Decisions"] for part in config["nav"] if "Decisions" in part)
    decisions += sorted(f"decisions/{page.name}" for page in (ROOT / "docs/decisions").glob("*.md"))
    return dict(config)


def write_pages(folder: Path) -> None:
    """The pages of `docs/` and those of the reference."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", folder)
    (folder / "reference").mkdir()
    for name, page in PAGES.items():
        (folder / "reference" / name).write_text(page(), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.site", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "build")
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    try:
        site = build(folder)
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
    print(f"the site is in {site}: python -m http.server --bind 127.0.0.1 --directory {site}")


if __name__ == "__main__":
    main()
