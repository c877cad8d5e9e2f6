"""`kill -9` of a server around the ends of waits and the arrival of signals: nothing is lost, and
nothing is taken twice. Senders repeat under the same id what was not acknowledged."""

from __future__ import annotations

import urllib.error
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import closing
from http.client import HTTPException
from pathlib import Path
from random import Random

import pytest

from anabranch.kernel import events as e
from anabranch.kernel.evolve import evolve
from anabranch.kernel.laws import Witness, check
from anabranch.kernel.state import State
from anabranch.runtime.live_run import history
from anabranch.store.sqlite.store import SqliteStore
from hangs import HANG_SECONDS
from seeds import seeds

from .test_server_kill_nine import ask, server

ITEMS, TICKS = 24, 12

PLAYBOOK = f"""apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: waits}}
executor: {{spec: {{final_step: sums}}}}
workflow:
  - step: start
    tool: {{kind: noop}}
    next: {{spec: {{mode: inclusive}}, arcs: [{{step: each}}, {{step: ticks}}]}}
  - step: each
    loop: {{in: {{range: {ITEMS}}}, iterator: n, spec: {{mode: parallel, max_in_flight: {ITEMS}}}}}
    tool:
      - {{name: soon, kind: wait, for: 20ms}}
      - {{name: said, kind: wait, event: item, filter: "{{{{ signal.payload == iter.n }}}}"}}
      - {{name: last, kind: wait, for: 20ms}}
      - {{name: sum, kind: noop, result: "{{{{ said.payload }}}}"}}
  - step: ticks
    loop: {{in: {{range: {TICKS}}}, iterator: n}}
    tool: {{kind: wait, for: 30ms}}
  - step: sums
    tool:
      kind: noop
      result: {{said: "{{{{ each.results | sort }}}}", ticks: "{{{{ ticks.results | length }}}}"}}
"""


def signal(url: str, run: str, n: int) -> str:
    path = f"/runs/{run}/signals/item"
    return str(ask(url, path, {"payload": n}, Idempotency_Key=f"item-{n}")["id"])


def one_life(folder: Path, run: str, unsent: list[int], acknowledged: int) -> str:
    """A server that is killed when so many signals were acknowledged; returns the run."""
    with server(folder) as (process, url), ThreadPoolExecutor(4) as pool:
        run = run or str(ask(url, "/runs", {"definition": PLAYBOOK})["run"])
        sending: dict[Future[str], int] = {
            pool.submit(signal, url, run, n): n for n in unsent[: acknowledged + 4]
        }
        heard = 0
        for sent in as_completed(sending, HANG_SECONDS):
            try:
                sent.result()
            except urllib.error.HTTPError:
                raise
            except (OSError, HTTPException, ValueError):
                continue  # killed in the middle: perhaps it is recorded
            unsent.remove(sending[sent])
            heard += 1
            if heard == acknowledged:
                process.kill()
    return run


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(10, least=1))
def test_no_signal_is_lost_or_taken_twice_and_every_wait_ends_once(
    seed: int, tmp_path: Path
) -> None:
    dice, unsent, run = Random(seed), list(range(ITEMS)), ""
    dice.shuffle(unsent)
    while unsent:
        run = one_life(tmp_path, run, unsent, dice.randint(1, 5))
    with server(tmp_path) as (_, url):
        for n in range(0, ITEMS, 5):
            signal(url, run, n)  # once more: these are the same ones
        while not (ended := ask(url, f"/runs/{run}/wait?seconds=30"))["settled"]:
            pass
        assert ended["status"] == "completed"
        assert ask(url, f"/runs/{run}")["result"] == {"said": list(range(ITEMS)), "ticks": TICKS}
    look_through(tmp_path / "s.db", run)


def look_through(file: Path, run: str) -> None:
    """The laws hold after every event of the log; each wait of a job ended once."""
    witness, state = Witness(), State()
    waits: Counter[str] = Counter()
    with closing(SqliteStore(str(file))) as store:
        for at, event in history(store.read(run)):
            evolve(state, event, at)
            witness.see(event)
            check(state)
            match event:
                case e.JobParked():
                    waits[event.job] += 1
                case e.JobContinued():
                    waits[event.job] -= 1
                case e.SignalTaken():
                    waits["taken"] += 1
                case _:
                    pass
    assert waits.pop("taken") == ITEMS
    assert set(waits.values()) == {0}
