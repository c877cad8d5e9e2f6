"""The commands that stand in the documentation, block by block, and stages to run them on.

Blocks of `sh`, `bash` and `console` hold commands; in those of `console` they begin with `$ `, and
what they print stands under them, with `…` for anything. A block of `cron` is a line of a crontab.
A stage is what a page takes for granted: files, a store with runs, a server. The commands of a page
run on it as they stand, one after another in one shell.
"""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from free_ports import free_ports

from .lessons import Told, loosely, read_console
from .pages import environment, fits, run_all

ROOT = Path(__file__).parents[2]
SHELL = ("sh", "bash", "shell", "console", "cron")
PORT = "8629"  # that a server has where nothing else is said
_FENCE = re.compile(
    r'^ *```(?P<language>\w*)(?: title="(?P<title>[^"]+)")?[^\n]*\n(?P<text>.*?)^ *```$',
    re.DOTALL | re.MULTILINE,
)
#: Commands that go on until they are stopped, and what shows that they are ready.
ON_AND_ON = {
    "anabranch serve": "grep -q ' at http' {out}",
    "anabranch dev": "grep -q ' at http' {out}",
    "ANABRANCH_WEBHOOK_ADDRESSES=any anabranch serve": "grep -q ' at http' {out}",
    "anabranch worker": "grep -q . {out}",
    "anabranch events last --follow": "grep -q . {out}",
    "python receiver.py": "(exec 3<>/dev/tcp/127.0.0.1/{receiver}) 2> receiver.log",
}


class Block(NamedTuple):
    page: str  # its path in the repository
    line: int
    language: str
    title: str
    text: str

    @property
    def first(self) -> str:
        return self.text.splitlines()[0].removeprefix("$ ") if self.text else ""


def pages() -> list[str]:
    """Everything that users read: decisions are for those who work on the project."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    found += [*(ROOT / "examples").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")]
    names = sorted(str(page.relative_to(ROOT)) for page in found)
    return [name for name in names if "/decisions/" not in name and name != "CHANGELOG.md"]


def blocks(page: str, text: str | None = None) -> list[Block]:
    text = (ROOT / page).read_text(encoding="utf-8") if text is None else text
    return [
        Block(
            page,
            text[: one.start()].count("\n") + 1,
            one["language"],
            one["title"] or "",
            textwrap.dedent(one["text"]),
        )
        for one in _FENCE.finditer(text)
    ]


def shell_blocks(page: str) -> list[Block]:
    return [one for one in blocks(page) if one.language in SHELL]


def commands(block: Block) -> Iterator[Told]:
    """One command may take several lines: after a backslash, and within quotes."""
    if block.language == "console":
        yield from map(_whole_of, read_console(block.text.replace("\\\n", "")))
        return
    whole = ""
    for line in block.text.replace("\\\n", "").splitlines():
        whole += line
        if _is_whole(whole):
            yield Told(_without_times(whole) if block.language == "cron" else whole, "", 0)
            whole = ""
        else:
            whole += "\n"
    assert not whole, f"{block.page}:{block.line} has a quote that never ends"


def _whole_of(told: Told) -> Told:
    text, _, prints = f"{told.text}\n{told.prints}".partition("\n")
    while prints and not _is_whole(text):
        line, _, prints = prints.partition("\n")
        text += f"\n{line}"
    return told._replace(text=text, prints=prints)


def _is_whole(text: str) -> bool:
    try:
        shlex.split(text, comments=True)
    except ValueError:
        return False
    return True


def _without_times(line: str) -> str:
    return line.split(None, 5)[5]


@dataclass(frozen=True)
class Stage:
    """What the commands of a page find. In texts `{folder}` is the folder that they run in."""

    only: str = ""  # the blocks that begin with one of these words, by lines; "": all of them
    files: Mapping[str, str] = field(default_factory=dict)
    before: str = ""  # commands of our own, which the page takes for granted
    changes: Mapping[str, str] = field(default_factory=dict)  # places and hosts of the page
    ports: tuple[str, ...] = ()
    says: tuple[str, ...] = ()  # what the commands print in all, somewhere

    def takes(self, block: Block) -> bool:
        return not self.only or block.first.startswith(tuple(self.only.splitlines()))


def follow(
    page: str, stage: Stage, folder: Path, *programs: Path, env: Mapping[str, str] | None = None
) -> int:
    """Run those of its blocks that the stage is for; says how many commands that were."""
    known = (PORT, *stage.ports)
    numbers = dict(zip(known, map(str, free_ports(len(known))), strict=True))

    def here(text: str) -> str:
        for was, now in {**stage.changes, **numbers}.items():
            text = text.replace(was, now)
        return text.replace("{folder}", str(folder))

    whole = [one for one in blocks(page) if one.title]
    for name, text in {**{one.title: one.text for one in whole}, **stage.files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(here(text), encoding="utf-8")
    told = [one for block in shell_blocks(page) if stage.takes(block) for one in commands(block)]
    told = [one._replace(text=here(one.text)) for one in told]
    out = folder / "out"
    out.mkdir()
    more = {"ANABRANCH_SERVE_PORT": numbers[PORT], "BROWSER": "true", **(env or {})}
    receiver = numbers.get("8745", "0")
    text = _script(here(stage.before), told, out, receiver)
    run_all(text, folder, {**environment(folder, *programs), **more})
    _judge(page, told, out, (folder / "background").read_text(encoding="utf-8"), stage)
    return len(told)


def _script(before: str, told: list[Told], out: Path, receiver: str) -> str:
    lines = [f"set -e\n{before}\nset +e\necho 0 > {out}/before.code"] if before else []
    for number, one in enumerate(told):
        file = f"{out}/{number}"
        ready = next((ON_AND_ON[word] for word in ON_AND_ON if one.text.startswith(word)), None)
        if ready is None:
            lines.append(f"{{ {one.text}\n}} > {file} 2>&1")
        else:
            is_ready = ready.format(out=file, receiver=receiver)
            lines += [
                f"{_without_comment(one.text)} > {file} 2>&1 &",
                f"until {is_ready} || ! kill -0 $!; do sleep 0.05; done",
                "kill -0 $!",
            ]
        lines.append(f"echo $? > {file}.code")
    return "\n".join(lines)


def _without_comment(text: str) -> str:
    return re.sub(r"\s+# .*$", "", text)


def _judge(page: str, told: list[Told], out: Path, beside: str, stage: Stage) -> None:
    assert not stage.before or (out / "before.code").exists(), f"{page}: no stage\n{beside}"
    printed = ""
    for number, one in enumerate(told):
        said = (out / str(number)).read_text(encoding="utf-8")
        shown = f"{page}: {one.text}\nprints\n{said}"
        assert (out / f"{number}.code").read_text() == f"{one.ends}\n", f"{shown}\n{beside}"
        assert not one.prints or fits(said, _any_run(loosely(one.prints))), f"{shown}{one.prints}"
        printed += said
    assert [word for word in stage.says if word not in printed] == [], printed


def _any_run(text: str) -> str:
    """What differs from run to run, in pages that show one as it was: ids, times, processes."""
    text = re.sub(r"\b1m[0-9a-z]{14}\b|\bwh[0-9a-f]{12}\b|\banb_[0-9a-z]{12}_", "…", text)
    return re.sub(r"\b\d+ ms\b|\bkill \d+\b|\b127\.0\.0\.1:\d+\b", "…", text)
