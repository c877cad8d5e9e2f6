"""A node of a story: its folder, its process, and questions to it.

The process leads a session of its own and ends with this one, whatever becomes of this one: a
lifeline between the two kills it (see `ChildProcess`), and modules end with their node in the same
way. `let_go` starts it without one, for nodes that are to stay.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from anabranch.errors import AnabranchError
from anabranch.market.node.folder import NodeFile, NodeFolder
from anabranch.market.node.keys import KeyFolder
from anabranch.market.node.modules.tokens import CONTROL_HEADER
from anabranch.surfaces.stories.arrows import Hold
from anabranch.surfaces.stories.held_node import HELD, HOLD
from anabranch.work.kinds.commands.child_process import ChildProcess

if TYPE_CHECKING:
    import aiohttp

START_SECONDS = 120.0  # far more than a start takes on a busy machine
STOP_SECONDS = 60.0
ASK_SECONDS = 60.0
LOOK_SECONDS = 0.02
_LOG_TAIL = 2_000

Seen = TypeVar("Seen")


class StoryFailed(AnabranchError):
    """A node did not do what every story needs: start, answer, come to an end."""

    code = "story_failed"


class NodeAway(AnabranchError):
    """No process answers; it may be on its way back."""

    code = "node_away"


class NodeRefused(AnabranchError):
    def __init__(self, status: int, code: str, message: str, body: Any) -> None:
        super().__init__(message, code=code)
        self.status = status
        self.body = body


class NodeProcess:
    def __init__(self, folder: NodeFolder, session: aiohttp.ClientSession) -> None:
        self.folder = folder
        file = folder.read()
        self.name = file.name
        self.url = f"http://{file.host}:{file.port}"
        self.modules = tuple(str(one["id"]) for one in file.modules)
        identities = KeyFolder.open(folder.keys).identities()
        self.node_id, self.participant_id = identities["node"], identities["participant"]
        self.deaths = 0
        self._killed = False  # and not started again yet
        self._session = session
        self._child: ChildProcess | None = None
        self._program: tuple[str, ...] = ()

    @classmethod
    def create(
        cls,
        folder: NodeFolder,
        file: NodeFile,
        config: Mapping[str, Any],
        session: aiohttp.ClientSession,
    ) -> NodeProcess:
        """`config` is what the operator sets over the configuration of modules."""
        folder.create(file)
        KeyFolder.create(folder.keys, ("node", "participant"))
        data = msgspec.json.format(msgspec.json.encode(config), indent=2)
        (folder.path / "config" / "story.json").write_bytes(data + b"\n")
        return cls(folder, session)

    # -- its process -----------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    @property
    def runs(self) -> bool:
        return self._child is not None and not self._child.ended

    def start(self, *, held: bool = False) -> None:
        """`held` starts one that can be told to wait at an arrow."""
        plain = ("anabranch", "node", "serve", "--json", "--node")
        module = ("anabranch.surfaces.stories.held_node",) if held else plain
        self._program = ("-m", *module, str(self.folder.path))
        self._launch()

    def _launch(self) -> None:
        self._killed = False
        self.folder.url.unlink(missing_ok=True)
        log = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            self._child = ChildProcess.start(
                [sys.executable, *self._program], output=log, errors=log, env=dict(os.environ)
            )
        finally:
            os.close(log)

    async def ready(self) -> None:
        """Returns when the node and all its modules can be asked."""
        await until(self._is_up, START_SECONDS, f"{self.name} to start")
        await until(self._has_modules, START_SECONDS, f"the modules of {self.name} to be ready")

    async def _is_up(self) -> bool:
        """The file `url` is written when all its parts are open."""
        assert self._child is not None
        if self._child.ended and not self._killed:
            raise StoryFailed(f"{self.name} does not start:\n{self.last_words()}")
        return self.folder.url.exists()

    async def _has_modules(self) -> bool:
        try:
            items = (await self.ask("GET", "/v1/modules"))["items"]
        except NodeAway:
            return False
        failed = [one for one in items if one["state"] == "failed"]
        if failed:
            raise StoryFailed(f"{self.name}: module {failed[0]['module_id']} has failed: "
                              f"{failed[0]['last_problem']}")  # fmt: skip
        return all(one["ready"] for one in items)

    async def module_pid(self, module: str) -> int | None:
        found: int | None = (await self.surely("GET", f"/v1/modules/{part(module)}"))["pid"]
        return found

    async def kill(self) -> None:
        """kill -9; its modules end with it."""
        assert self._child is not None
        self._killed = True
        with suppress(ProcessLookupError):
            os.kill(self._child.pid, signal.SIGKILL)
        await self._child.exited()
        self.deaths += 1

    async def revive(self) -> None:
        """Start it again as it was, where it was killed."""
        if not self.runs:
            self._launch()
            await self.ready()

    def signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    async def stop(self) -> int:
        """In order. What is left of it after that is killed, whatever it is."""
        child, self._child = self._child, None
        if child is None:
            return 0
        if not child.ended:
            with suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGTERM)
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_SECONDS):
                    await child.exited()
        return await child.stop(0, with_descendants=True)

    def let_go(self) -> int:
        """Start it so that it outlives this process; returns its number."""
        self.folder.url.unlink(missing_ok=True)
        log = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", "anabranch", "node", "serve", "--node",
                 str(self.folder.path)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        finally:
            os.close(log)
        process.returncode = 0  # it is not waited for: it has become a process of its own
        return process.pid

    @property
    def _log(self) -> str:
        return str(self.folder.path / "node.log")

    def last_words(self) -> str:
        with suppress(OSError), open(self._log, encoding="utf-8", errors="replace") as log:
            return log.read()[-_LOG_TAIL:].strip()
        return ""

    # -- waiting at an arrow ---------------------------------------------------------------------

    def hold(self, hold: Hold) -> None:
        (self.folder.path / HELD).unlink(missing_ok=True)
        new = self.folder.path / f"{HOLD}.new"
        new.write_bytes(msgspec.json.encode(hold))
        os.replace(new, self.folder.path / HOLD)

    @property
    def is_held(self) -> bool:
        return (self.folder.path / HELD).exists()

    def release(self) -> None:
        (self.folder.path / HOLD).unlink(missing_ok=True)

    # -- questions -------------------------------------------------------------------------------

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """As its operator, unless `headers` say who asks. Raises `NodeAway` and `NodeRefused`."""
        import aiohttp

        where = f"{self.url}{path}" + (f"?{urlencode(query)}" if query else "")
        data = None if body is None else msgspec.json.encode(body)
        sent = {"Content-Type": "application/json", **(headers or self._operator())}
        try:
            async with (
                asyncio.timeout(ASK_SECONDS),
                self._session.request(method, where, data=data, headers=sent) as response,
            ):
                status, raw = response.status, await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError):
            raise NodeAway(f"{self.name} does not answer") from None
        if status == 401 and headers is None:  # the token of the process before
            raise NodeAway(f"{self.name} is starting")
        return _answered(status, raw)

    def _operator(self) -> dict[str, str]:
        """Every process of a node has a token of its own."""
        try:
            return {CONTROL_HEADER: self.folder.control_token.read_text().strip()}
        except FileNotFoundError:
            raise NodeAway(f"{self.name} has never run") from None

    async def surely(
        self, method: str, path: str, body: Any = None, query: Mapping[str, Any] | None = None
    ) -> Any:
        """Ask until there is an answer, of this process or the next one."""
        found: list[Any] = []

        async def is_answered() -> bool:
            try:
                found.append(await self.ask(method, path, body, query))
            except NodeAway:
                return False
            except NodeRefused as error:
                if error.status not in (502, 503):
                    raise
                return False
            return True

        await until(is_answered, START_SECONDS, f"{self.name} to answer {method} {path}")
        return found[0]

    async def items(self, path: str, *, of: str = "items", **query: Any) -> list[dict[str, Any]]:
        """Up to 500 rows of a list, which its answer has under this name."""
        found = await self.surely("GET", path, query={"limit": 500, **query})
        return list(found[of])


def _answered(status: int, raw: bytes) -> Any:
    body = msgspec.json.decode(raw) if raw else None
    if 200 <= status < 300:
        return body
    said = body if isinstance(body, dict) else {}
    code = str(said.get("code") or f"status_{status}")
    raise NodeRefused(status, code, str(said.get("detail") or code), body)


async def until(
    is_so: Callable[[], Awaitable[object]],
    seconds: float,
    what: str,
    look_seconds: float = LOOK_SECONDS,
) -> None:
    end = time.monotonic() + seconds
    while not await is_so():
        if time.monotonic() > end:
            raise StoryFailed(f"waited {seconds:g} s in vain for {what}")
        await asyncio.sleep(look_seconds)


def part(name: str) -> str:
    """An id as one part of a path."""
    return quote(name, safe="")
