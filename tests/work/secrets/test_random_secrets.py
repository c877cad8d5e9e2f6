"""Random pipelines with random secrets, some of which are words of the data.

The oracle is the same playbook without a keychain: steps that look up no secret record exactly what
they record there. Of the others no recorded byte has a secret of 8 characters or more, in whatever
form of the table the work wrote it.
"""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import pytest

from anabranch import Engine
from anabranch.settings import Settings
from anabranch.work.secrets.forms import fold
from anabranch.work.secrets.redaction import INSIDE
from seeds import seeds

from .written_secrets import FORMS

WORDS = ["the", "latest", "contest", "harvest", "password", "interesting", "Straße", "north-west"]


def make(rng: random.Random) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """Secrets by name, and steps that each say something, some of it secret."""
    secrets = {}
    for number in range(rng.randint(1, 3)):
        short = rng.choice(["test", "the", "rest", *WORDS])
        long = "".join(rng.choices("abcdefghijkXYZ0123456789-_+/=&<>' \"ü", k=rng.randint(8, 40)))
        secrets[f"s{number}"] = rng.choice([short, long.strip().ljust(8, "x")])
    steps = []
    for _ in range(rng.randint(2, 4)):
        words = " ".join(rng.choices(WORDS, k=4))
        said: list[Any] = [words, {words.split()[0]: words}, rng.random()]
        step = {"uses": rng.choice(["", "", *secrets]), "said": said, "fails": rng.random() < 0.2}
        step["form"] = rng.choice(FORMS)
        steps.append(step)
    return secrets, steps


def written(step: dict[str, Any], secrets: dict[str, str], rng: random.Random) -> list[Any]:
    """What the step says: words, and where it was given a secret also that, in some form."""
    if not step["uses"]:
        return list(step["said"])
    forms = list(step["form"].write(secrets[step["uses"]])) or [secrets[step["uses"]]]
    text = rng.choice(forms)
    return [*step["said"], text, {"deep": [f"x {text} y"]}]


def playbook(steps: list[dict[str, Any]], names: list[str]) -> str:
    """What the steps say comes from files: it stands in no definition."""
    keychain = [{"name": name, "kind": "env", "map": {"v": f"RANDOM_{name}"}} for name in names]
    workflow: list[dict[str, Any]] = []
    for number, step in enumerate(steps):
        code = f"import json\nresult = json.load(open({step['file']!r}))"
        if step["fails"]:
            code = f"raise ValueError(open({step['file']!r}).read())"
        args = {"s": f"{{{{ keychain.{step['uses']}.v }}}}"} if names and step["uses"] else {}
        last = number + 1 == len(steps)
        arcs = [] if last else [{"step": f"step{number + 1}"}]
        tool = {"kind": "python", "args": args, "code": code}
        workflow.append({"step": f"step{number}", "tool": tool, "next": {"arcs": arcs}})
    whole: dict[str, Any] = {
        "apiVersion": "noetl.io/v2",
        "kind": "Playbook",
        "metadata": {"name": "random"},
        "workflow": [
            {k: v for k, v in each.items() if k != "next" or v["arcs"]} for each in workflow
        ],
    }
    if names:
        whole["keychain"] = keychain
    return json.dumps(whole)


async def recorded(text: str, store: Path) -> dict[str, Any]:
    """The answers of the steps."""
    path = store.with_suffix(".yaml")
    path.write_text(text)
    async with Engine(store, settings=Settings(poll_seconds=0.05)) as engine:
        run = await engine.start(path)
        await engine.wait(run)
        events = [each.fields async for each in engine.events(run)]
        reports = [each for each in events if "answer" in each and "job" in each]
        return {each["job"]: each["answer"] for each in reports}


@pytest.mark.parametrize("seed", seeds(120))
def test_secrets_change_nothing_but_what_was_given_them(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    secrets, steps = make(rng)
    for name, value in secrets.items():
        monkeypatch.setenv(f"RANDOM_{name}", value)
    for number, step in enumerate(steps):
        step["file"] = str(tmp_path / f"said{number}.json")
        Path(step["file"]).write_text(json.dumps(written(step, secrets, rng)))

    async def both() -> tuple[dict[str, Any], dict[str, Any]]:
        with_keys = await recorded(playbook(steps, list(secrets)), tmp_path / "with.db")
        return with_keys, await recorded(playbook(steps, []), tmp_path / "without.db")

    found, oracle = asyncio.run(both())
    assert found.keys() == oracle.keys()
    stored = b"".join(each.read_bytes() for each in tmp_path.glob("with.db*"))
    for secret in secrets.values():
        if len(secret) >= INSIDE and secret not in WORDS:
            assert fold(secret).encode() not in stored.lower(), (seed, secret)
    for step, (job, answer) in zip(steps, found.items(), strict=False):
        if not step["uses"]:
            assert answer == oracle[job], (seed, job)
            continue
        assert answer["status"] == oracle[job]["status"]
        secret = secrets[step["uses"]]
        if len(secret) >= INSIDE:
            for text in texts_of(answer):
                for form in FORMS:
                    for each in form.write(secret):
                        if len(each) >= INSIDE and form.name not in ("base64", "base64 in lines"):
                            assert fold(each) not in fold(text), (seed, form.name, text)
            assert answer["redacted"] > 0
        elif not step["fails"]:
            assert answer["result"][:3] == [
                "***" if each == secret else each for each in step["said"]
            ]


def texts_of(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for item in (*value.keys(), *value.values()) for text in texts_of(item)]
    return [text for item in value for text in texts_of(item)] if isinstance(value, list) else []
