"""Messages that reached something new once, a file for each door: texts whose letters are bytes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).parent / "messages"


def kept(door: str) -> list[bytes]:
    path = FOLDER / f"{door}.json"
    if not path.exists():
        return []
    return [text.encode("latin-1") for text in json.loads(path.read_text("utf-8"))]


def keep(door: str, messages: Sequence[bytes]) -> None:
    texts = sorted(message.decode("latin-1") for message in messages)
    path = FOLDER / f"{door}.json"
    path.write_text(json.dumps(texts, indent=0, ensure_ascii=True) + "\n", "utf-8")
