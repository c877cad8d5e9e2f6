"""A whole server in a thread, a browser in front of it, and the runs that the tests look at."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
from aiohttp import web

import elsewhere
from anabranch.kernel.state import State
from anabranch.operations.access.tokens import everything
from anabranch.parts import Parts
from anabranch.settings import Settings
from anabranch.store.factory import open_store
from anabranch.surfaces.http.app import make_application
from anabranch.surfaces.http.guard.auth import CALLER
from anabranch.surfaces.http.routes import LOCAL
from anabranch.surfaces.ui.context import UI
from anabranch.surfaces.ui.routes import mount
from anabranch.work.kinds.callables import Toolbox
from hangs import HANG_SECONDS

T = TypeVar("T")
NASTY = (
    '<img src=x onerror="window.hacked=1">\'"`</script><script>window.hacked=2</script>&amp;{{7*7}}'
)
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")
ARTIFACTS = Path(__file__).parents[3] / "test-artifacts" / "ui"
PICTURES = bool(os.environ.get("ANABRANCH_PICTURES"))  # two fifths of the time of test_pages.py


@web.middleware
async def _known(request: web.Request, handler: Any) -> web.StreamResponse:
    """What the real guards do where no token is asked for."""
    request[CALLER] = everything(LOCAL)
    response: web.StreamResponse = await handler(request)
    return response


def chromium() -> str | None:
    """The browser of the system; CI installs one with `make browser`. The one without windows comes
    first: the same engine at half the cost."""
    chosen = os.environ.get("CHROMIUM")
    names = (
        [chosen]
        if chosen
        else ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome"]
    )
    return next((path for name in names if (path := shutil.which(name))), None)


def chosen(names: Iterable[str], alike: set[str]) -> list[Any]:
    """All of them as cases; those that are like others are for `make soak` and for pictures."""
    rare = () if PICTURES else (pytest.mark.soak,)
    return [pytest.param(name, marks=rare if name in alike else ()) for name in names]


def picture(page: Any, name: str, *, whole: bool = True) -> None:
    """For people who look at it, where they have asked for pictures."""
    if PICTURES:
        page.screenshot(path=ARTIFACTS / f"{name}.png", full_page=whole)


def install_chromium() -> str | None:
    """Root on Debian can install it; anybody else is told how."""
    if chromium() is None and os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(["make", "browser"], check=False, capture_output=True, timeout=600)
    return chromium()


class Steps:
    """Work that goes on only when a test says so."""

    def __init__(self) -> None:
        self._doors: dict[str, threading.Event] = {}
        self._lock = threading.Lock()

    def door(self, name: str) -> threading.Event:
        with self._lock:
            return self._doors.setdefault(name, threading.Event())

    def open(self, name: str) -> None:
        self.door(name).set()

    def toolbox(self) -> Toolbox:
        box = Toolbox()

        @box.tool(name="wait_at")
        def wait_at(door: str) -> dict[str, Any]:
            if not self.door(door).wait(HANG_SECONDS):
                raise TimeoutError(door)
            return {"door": door}

        @box.tool(name="item")
        def item(n: int, bad: int, door: str = "", error: str = "") -> int:
            if door and not self.door(door).wait(HANG_SECONDS):
                raise TimeoutError(door)
            if n % 50 == bad and not self.door("mended").is_set():
                raise ValueError(error or f"item {n} is bad")
            return n * n

        return box

    def open_all(self) -> None:
        with self._lock:
            doors = list(self._doors.values())
        for door in doors:
            door.set()


class Server:
    """Engine and pages on a free port, in a thread with a loop of its own."""

    def __init__(
        self, folder: Path, participants: dict[str, Any] | None = None, shutdown_seconds: float = 2
    ) -> None:
        self.steps = Steps()
        self._shutdown_seconds = shutdown_seconds
        self._folder = folder
        self._participants = participants
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.url = ""

    def __enter__(self) -> Server:
        self._thread.start()
        self.call(self._open())
        return self

    def __exit__(self, *_exc: object) -> None:
        self.steps.open_all()
        self.call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(HANG_SECONDS)
        self._loop.close()

    async def _open(self) -> None:
        chosen = Settings(store=str(self._folder / "runs.db"), grace_seconds=0.2)
        settings, tools = (
            elsewhere.moved(replace(chosen, synchronous="NORMAL")),
            self.steps.toolbox(),
        )
        self._beside = elsewhere.owner_beside(settings, tools, self._participants)
        await self._beside.__aenter__()
        self.store = open_store(settings)
        self.parts = Parts(self.store, settings, tools, self._participants)
        await self.parts.engine.open()
        app = make_application(self.parts, settings, guards=(_known,), mounts=(mount,))
        self.ui = app[UI]
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=self._shutdown_seconds)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"

    async def _close(self) -> None:
        await self._runner.cleanup()
        await self.parts.close(0.2)
        self.store.close()
        await self._beside.__aexit__(None, None, None)

    # -- from the test's thread --------------------------------------------------------------

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return future.result(HANG_SECONDS)

    def start(self, text: str, given: dict[str, Any] | None = None, **more: Any) -> str:
        """Input that the definition does not know is taken: pages have to show any."""
        return self.call(self.parts.verbs.start(text, given, **{"allow_extra_input": True, **more}))

    def wait(self, run: str, *, standing: bool = False) -> State:
        return self.call(self.parts.verbs.wait(run, standing=standing))

    def run(self, text: str, given: dict[str, Any] | None = None, **more: Any) -> str:
        run = self.start(text, given, **more)
        self.wait(run, standing=True)
        return run

    def status(self, run: str) -> str:
        head = self.store.head(run)
        return head.status if head is not None else ""


def eventually(check: Callable[[], Any], seconds: float = HANG_SECONDS) -> Any:
    """Ask until it is true; what it said last."""
    until = time.monotonic() + seconds
    while True:
        found = check()
        if found or time.monotonic() > until:
            return found
        time.sleep(0.02)


# -- definitions ---------------------------------------------------------------------------------

TWO_STEPS = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: two_steps, description: Two steps that wait to be let through.}
workload: {first: a, second: b}
workflow:
  - step: dig
    tool: {kind: wait_at, args: {door: "{{ workload.first }}"}}
    next: {arcs: [{step: fill}]}
  - step: fill
    tool: {kind: wait_at, args: {door: "{{ workload.second }}"}}
"""

ASKED = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: asked}
workload: {amount: 120}
workflow:
  - step: quote
    tool: {kind: noop, result: {price: "{{ workload.amount }}"}}
    next: {arcs: [{step: approve}]}
  - step: approve
    tool: {kind: decision, ask: "Pay the bill?"}
    next:
      arcs:
        - {step: pay}
  - step: pay
    tool: {kind: noop, result: paid}
"""

HELD = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: held}
workflow:
  - step: publish
    spec:
      policy:
        admit:
          rules:
            - {when: "{{ ctx.approved }}", then: {allow: true}}
            - {else: {then: {allow: false}}}
    tool: {kind: noop, result: out}
"""

LOOP = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: items}
workload: {count: 200, bad: 7, door: "", error: ""}
workflow:
  - step: each
    spec:
      loop_mode: fanout
      fanout: {shard_size: 10, max_concurrent: 2, max_job_retries: 0, allow_partial: true}
      policy: {failure: {mode: best_effort}}
    loop: {in: {range: "{{ workload.count }}"}, iterator: n}
    tool:
      kind: item
      args:
        n: "{{ iter.n }}"
        bad: "{{ workload.bad }}"
        door: "{{ workload.door }}"
        error: "{{ workload.error }}"
"""

MANY_ITEMS = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: many_items}
workload: {count: 100000}
workflow:
  - step: squares
    spec: {loop_mode: fanout, fanout: {shard_size: 200, max_concurrent: 2, keep_results: false}}
    loop: {in: {range: "{{ workload.count }}"}, iterator: n}
    tool: {kind: noop}
"""

OPINIONS = """
{"id": "opinions", "structure": {
  "ORDER": {"rule": "cm:xrc137:ORDER", "onValid": {"spawns": ["A", "B", "C"],
    "join": {"joinid": "DONE", "mode": "kofn", "k": 2, "waitonjoin": "kill",
             "from": [{"node": "A", "when": "valid"}, {"node": "B", "when": "valid"},
                      {"node": "C", "when": "valid"}]}}},
  "A": {"rule": "cm:xrc137:A"}, "B": {"rule": "cm:xrc137:B"}, "C": {"rule": "cm:xrc137:C"},
  "DONE": {"rule": "cm:xrc137:DONE"}}}
"""
VALID = {"payload": {"amount": {"type": "int64"}}, "rules": ["[amount] > 0"]}
INVALID = {"payload": {"amount": {"type": "int64"}}, "rules": ["[amount] < 0"]}
RULES = {"ORDER": VALID, "A": VALID, "B": INVALID, "C": VALID, "DONE": VALID}


def long_net(steps: int) -> str:
    """A chain with shortcuts, of so many steps."""
    lines = ["apiVersion: noetl.io/v2", "kind: Playbook", "metadata: {name: long_net}", "workflow:"]
    for number in range(steps):
        lines += [f"  - step: s{number}", "    tool: {kind: noop}"]
        if number + 1 < steps:
            arcs = [f"{{step: s{number + 1}}}"]
            if number % 9 == 0 and number + 4 < steps:
                arcs.insert(0, f"{{step: s{number + 4}, when: '{{{{ false }}}}'}}")
            lines.append(f"    next: {{arcs: [{', '.join(arcs)}]}}")
    return "\n".join(lines) + "\n"


#: What was changed has been laid out and painted.
TWO_FRAMES = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


def becomes(page: Any, expression: str, seconds: float = HANG_SECONDS) -> None:
    """Until this is true in the page. Not `wait_for_function`: the page's policy forbids eval."""
    assert eventually(lambda: _is_true(page, expression), seconds), expression


def _is_true(page: Any, expression: str) -> bool:
    """False also while the page is being left: what was asked of it then has no answer."""
    from playwright.sync_api import Error

    try:
        return bool(page.evaluate(f"Boolean({expression})"))
    except Error as error:
        if "context was destroyed" not in str(error):
            raise
        return False
