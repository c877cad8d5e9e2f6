"""Whoever uses a library first has the whole of it, also where fifty do so at once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hangs import HANG_SECONDS

FIFTY = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: fifty}
workflow:
  - step: each
    loop: {in: {range: 50}, iterator: k, spec: {mode: parallel, max_in_flight: 50}}
    tool: TOOL
"""
TOOLS = {
    "postgres": '{kind: postgres, dsn: "DSN", query: "select 1 as n"}',
    "duckdb": '{kind: duckdb, query: "select 1 as n"}',
}
#: Loaded late, by modules whose imports cross: each thread begins with another of them.
CROSSED = {
    "psycopg": ("psycopg", "psycopg.types.json", "psycopg.rows"),
    "cryptography": (
        "cryptography.hazmat.primitives.ciphers.aead",
        "cryptography.hazmat.primitives.serialization",
        "cryptography.hazmat.primitives.asymmetric.rsa",
    ),
    "buckets": ("fsspec", "aiobotocore.session", "aiobotocore.httpsession", "fsspec.core"),
    "parquet": ("pyarrow.parquet",),
    "duckdb": ("duckdb",),
    "chain": ("eth_account", "eth_account.messages", "eth_utils.address"),
}
THREADS = """
import sys, threading
from anabranch.work.libraries import load

failed, ready = [], threading.Barrier(50)

def first(number):
    ready.wait()
    try:
        for name in names[number % len(names):] + names:
            load(name)
    except BaseException as error:
        failed.append(repr(error))

for names in [words.split(",") for words in sys.argv[1:]]:
    threads = [threading.Thread(target=first, args=(number,)) for number in range(50)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
sys.exit("; ".join(failed[:3]) or 0)
"""


@pytest.mark.soak
@pytest.mark.parametrize("kind", TOOLS)
def test_fifty_items_may_be_the_first(kind: str, postgres: str, tmp_path: Path) -> None:
    file = tmp_path / "fifty.yaml"
    file.write_text(FIFTY.replace("TOOL", TOOLS[kind].replace("DSN", postgres)))
    words = [sys.executable, "-m", "anabranch", "run", str(file), "--json"]
    done = subprocess.run(
        words, cwd=tmp_path, capture_output=True, text=True, timeout=HANG_SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["result"]["stats"] == {"total": 50, "success": 50, "failed": 0}


@pytest.mark.soak
def test_fifty_threads_may_be_the_first() -> None:
    words = [",".join(names) for names in CROSSED.values()]
    done = subprocess.run(
        [sys.executable, "-c", THREADS, *words],
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
