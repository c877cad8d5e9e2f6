"""What is installed is what was chosen: locked with hashes, bounded, and its licence is listed."""

from __future__ import annotations

import importlib.metadata as metadata
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
RUNTIME: list[str] = PROJECT["project"]["dependencies"]
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
OPTIONAL = [each for group in EXTRAS.values() for each in group]
GROUPS: dict[str, list[Any]] = PROJECT["dependency-groups"]
DOCS: list[str] = GROUPS["docs"]
DEV = [*DOCS, *(one for one in GROUPS["dev"] if isinstance(one, str))]
BUILD = [
    line
    for line in (ROOT / "requirements" / "build.in").read_text().splitlines()
    if line and not line.startswith("#")
]
LOCKS = {
    "runtime.lock": [*RUNTIME, *BUILD],
    "docs.lock": [*RUNTIME, *BUILD, *DOCS],
    "image.lock": [*RUNTIME, *BUILD, *EXTRAS["postgres"], *EXTRAS["market"]],
    "dev.lock": [*RUNTIME, *BUILD, *DEV, *OPTIONAL],
}
#: What packages without an SPDX expression say, and what that may be called here.
STATED = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD": "BSD-3-Clause",
    "BSD License": "BSD-3-Clause",
    "BSD, Public Domain": "BSD-2-Clause AND Unlicense",
    "MIT License": "MIT",
}


def pins_of(lock: str) -> dict[str, tuple[str, int]]:
    """Each package with its version and the number of its hashes."""
    text = (ROOT / "requirements" / lock).read_text().replace("\\\n", " ")
    found: dict[str, tuple[str, int]] = {}
    for line in text.splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            given, *hashes = line.split("--hash=sha256:")
            requirement = Requirement(given)
            (pin,) = requirement.specifier
            assert pin.operator == "==", line
            found[canonicalize_name(requirement.name)] = (pin.version, len(hashes))
    return found


def rows_of(heading: str) -> dict[str, list[str]]:
    """A table of the page by package, without the extras in brackets."""
    text = (ROOT / "docs" / "licences.md").read_text()
    part = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line.strip("|").split("|") for line in part.splitlines() if line.startswith("| `")]
    cells = [[cell.strip().strip("`") for cell in line] for line in lines]
    return {canonicalize_name(row[0].partition("[")[0]): row for row in cells}


def ranges(given: Iterable[str]) -> dict[str, str]:
    found = [Requirement(each) for each in given]
    return {canonicalize_name(one.name): str(one.specifier) for one in found}


def same_range(ours: str, theirs: str) -> bool:
    return sorted(ours.split(",")) == sorted(theirs.split(","))


def brought_along(given: Iterable[str]) -> set[str]:
    """The packages that these need in turn, by what the installed ones say."""
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = [Requirement(each) for each in given]
    while waiting:
        one = waiting.pop()
        key = (canonicalize_name(one.name), frozenset(one.extras))
        if key in seen:
            continue
        seen.add(key)
        for text in metadata.requires(key[0]) or []:
            needed = Requirement(text)
            extras = [*one.extras, ""]
            if not needed.marker or any(needed.marker.evaluate({"extra": e}) for e in extras):
                waiting.append(needed)
    return {name for name, _ in seen}


def stated_licence(package: str) -> set[str]:
    about = metadata.metadata(package)
    if "License-Expression" in about:
        return {about["License-Expression"]}
    kinds = [kind.rpartition(" :: ")[2] for kind in about.get_all("Classifier") or []]
    words = {*(about.get_all("License") or []), *kinds}
    return {STATED.get(word, word) for word in words}


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_holds_every_dependency_within_its_range_and_with_hashes(lock: str) -> None:
    pins = pins_of(lock)
    for text in LOCKS[lock]:
        requirement = Requirement(text)
        version, _ = pins[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version, prereleases=True), (text, version)
    assert [name for name, (_, hashes) in pins.items() if hashes == 0] == []


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_names_no_place_that_files_come_from(lock: str) -> None:
    text = (ROOT / "requirements" / lock).read_text()
    assert not re.search(r"://|--(extra-)?index-url|--find-links|--trusted-host", text)


def test_the_tools_for_testing_stand_on_the_locked_runtime() -> None:
    every = pins_of("dev.lock")
    for lock in ("runtime.lock", "docs.lock", "image.lock"):
        for name, pin in pins_of(lock).items():
            assert every[name][0] == pin[0]


def test_what_builds_the_package_is_locked_as_it_is_declared() -> None:
    assert set(PROJECT["build-system"]["requires"]) <= set(BUILD)


def test_every_dependency_has_an_upper_bound() -> None:
    for text in LOCKS["dev.lock"]:
        operators = {one.operator for one in Requirement(text).specifier}
        assert operators & {"<", "=="}, f"{text}: which version is too new to be known?"


def test_every_dependency_has_its_row_among_the_licences() -> None:
    listed = rows_of("At run time")
    wanted = ranges(RUNTIME) | ranges(OPTIONAL)
    assert listed.keys() == wanted.keys()
    extras = {
        str(canonicalize_name(Requirement(text).name)): extra
        for extra, texts in EXTRAS.items()
        for text in texts
    }
    for name, row in listed.items():
        assert same_range(row[1], wanted[name]), name
        assert row[4] == extras.get(name, ""), name
    tools = rows_of("To build and to test")
    wanted = ranges([*BUILD, *DEV])
    assert tools.keys() == wanted.keys()
    assert [name for name, row in tools.items() if not same_range(row[1], wanted[name])] == []


def test_every_package_that_comes_along_has_its_row() -> None:
    try:
        needed = brought_along([*RUNTIME, *OPTIONAL])
    except metadata.PackageNotFoundError as missing:
        pytest.skip(f"not every extra is installed here: {missing}")
    listed = rows_of("At run time").keys() | rows_of("What these bring with them").keys()
    assert needed - listed == set()
    assert listed - pins_of("dev.lock").keys() == set()


@pytest.mark.parametrize(
    "heading", ["At run time", "What these bring with them", "To build and to test"]
)
def test_the_licences_listed_are_those_that_the_packages_state(heading: str) -> None:
    column = 1 if heading == "What these bring with them" else 2
    compared = 0
    for name, row in rows_of(heading).items():
        try:
            stated = stated_licence(name)
        except metadata.PackageNotFoundError:
            continue  # only on another platform, or an extra that is not installed
        assert row[column] in stated, (name, row[column], stated)
        compared += 1
    assert compared >= 4
