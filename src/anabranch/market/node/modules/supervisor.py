"""One module from its start to its end: ready polling, init and report, health, restarts.

    configured → starting → ready ⇄ degraded → stopping → stopped | failed

A module is routable when its report was accepted and its last health check was good. A failure is
followed by a restart while the policy allows one in its window. What cannot be mended by starting
again (a report that lies or does not fit, a port of its own) ends in `failed` at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal

import msgspec

from anabranch.cancel import cancel_and_wait
from anabranch.clock import Clock
from anabranch.errors import AnabranchError, InputError
from anabranch.market.node.modules.config import INIT_PATH, ModuleConfig
from anabranch.market.node.modules.launcher import Launcher, RunningModule
from anabranch.market.node.modules.reports import CheckedReport, check_report
from anabranch.market.node.modules.tokens import ModuleTokens
from anabranch.market.node.modules.transport import CallLimits, ModuleAnswer, ModuleCallFailed
from anabranch.work.kinds.commands.child_process import ending

logger = logging.getLogger("anabranch.node")

ModuleState = Literal[
    "configured", "starting", "ready", "degraded", "stopping", "stopped", "failed"
]
READY_POLL_SECONDS = (0.05, 0.5)  # first, and at most
RESTART_SECONDS = (0.1, 5.0)
RESTART_DOUBLINGS = 10  # more than enough to come to the longest pause
PORT_AGAIN_SECONDS = 0.5

#: Of what can be wrong with the answer to `init`, under the names of reports.
_REPORT_CODES = {
    "module_response_too_large": "report_too_large",
    "module_response_too_deep": "report_too_deep",
    "module_response_invalid": "report_schema",
}

#: Told an accepted report; answers what of it had to be refused.
AcceptReport = Callable[[str, CheckedReport], Awaitable[list[str]]]


class ModuleNotReady(AnabranchError):
    code = "module_not_ready"


class ModuleProblem(AnabranchError):
    """Why a life of a module ended. `final`: starting it again would not help."""

    def __init__(self, code: str, message: str, *, final: bool = False) -> None:
        super().__init__(message, code=code)
        self.final = final


class ProblemRecord(msgspec.Struct, frozen=True):
    code: str
    message: str
    at: int


class SupervisedModule:
    def __init__(
        self,
        config: ModuleConfig,
        launcher: Launcher,
        clock: Clock,
        *,
        init: Callable[[], Mapping[str, Any]],
        tokens: ModuleTokens,
        accept: AcceptReport,
    ) -> None:
        self.config = config
        self.state: ModuleState = "configured"
        self.problem: ProblemRecord | None = None
        self.report: CheckedReport | None = None
        self.ready_at: int | None = None
        self.restarts = 0
        self.conflicts: list[str] = []
        self._launcher = launcher
        self._clock = clock
        self._init = init
        self._headers = {**config.http.headers}
        if config.auth_token:
            self._headers[config.auth_token] = tokens.to_module(config.module)
        self._tokens = tokens
        self._accept = accept
        self._running: RunningModule | None = None
        self._healthy = False
        self._recent: list[int] = []  # instants of restarts in the window
        self._stop_asked = asyncio.Event()
        self._changed = asyncio.Event()
        self._life: asyncio.Task[None] | None = None

    @property
    def module(self) -> str:
        return self.config.module

    @property
    def routable(self) -> bool:
        return self.state in ("ready", "degraded") and self._healthy

    @property
    def pid(self) -> int | None:
        return self._running.pid if self._running is not None else None

    # -- coming and going --------------------------------------------------------------------

    def start(self) -> None:
        """Begin, unless it is alive already. The window of restarts begins anew."""
        if self._life is not None and not self._life.done():
            return
        self._recent.clear()
        self._stop_asked = asyncio.Event()
        self._set("starting")
        self._life = asyncio.get_running_loop().create_task(self._live())

    async def stop(self) -> None:
        """Stop routing to it, then end it; returns when it is gone."""
        if self._life is None:
            self._set("stopped")
            return
        self._stop_asked.set()
        await asyncio.wait((self._life,))

    async def settled(self) -> None:
        """Returns when it is neither starting nor stopping."""
        while self.state in ("configured", "starting", "stopping"):
            await self.change()

    async def change(self) -> None:
        """Returns at the next change of its state."""
        await self._changed.wait()

    # -- calls -------------------------------------------------------------------------------

    async def call(
        self,
        path: str,
        body: Any,
        *,
        method: str = "POST",
        headers: Mapping[str, str] | None = None,
        limits: CallLimits | None = None,
    ) -> ModuleAnswer:
        """Raises `ModuleNotReady` and `ModuleCallFailed`."""
        if not self.routable or self._running is None:
            raise ModuleNotReady(f"the module {self.module} is {self.state}")
        sent = {**self._headers, **(headers or {})}
        try:
            return await self._running.transport.call(
                method, path, body, sent, limits or self._limits()
            )
        except ModuleCallFailed as error:
            self.note(error.code, f"{method} {path}: {error.message}")
            raise

    def note(self, code: str, message: str) -> None:
        """Keep a problem for the operator. Words of the module may be in it, but no secret: a
        module that says its token is not repeated."""
        message = self._tokens.redacted(message)
        known = self.problem is not None and self.problem.code == code
        self.problem = ProblemRecord(code, message, self._clock.now())
        level = logging.DEBUG if known else logging.WARNING  # one that fails all day is said once
        logger.log(level, "module %s: %s (%s)", self.module, message, code)

    def _limits(self) -> CallLimits:
        http = self.config.http
        return CallLimits(http.request_timeout_ms / 1000, http.max_response_bytes)

    # -- one life after another --------------------------------------------------------------

    async def _live(self) -> None:
        while True:
            self._set("starting")
            try:
                await self._one_life()
            except ModuleProblem as problem:
                self.note(problem.code, problem.message)
                if problem.code == "exited":  # it ended by itself, and well
                    self._set("stopped")
                    return
                if problem.final or not self._may_restart():
                    self._set("failed")
                    return
            except Exception as error:
                logger.error("supervising the module %s failed", self.module, exc_info=error)
                self.note("defect", f"the node failed to supervise it ({type(error).__name__})")
                self._set("failed")
                return
            if self._stop_asked.is_set() or await self._paused():
                self._set("stopped")
                return
            self.restarts += 1

    def _may_restart(self) -> bool:
        policy = self.config.restart_policy
        now = self._clock.now()
        self._recent = [at for at in self._recent if at > now - policy.window_sec * 1000]
        if policy.mode == "never" or len(self._recent) >= policy.max_restarts:
            return False
        self._recent.append(now)
        return True

    async def _paused(self) -> bool:
        """Wait before the next start; whether a stop was asked meanwhile."""
        first, most = RESTART_SECONDS
        try:
            doublings = min(len(self._recent) - 1, RESTART_DOUBLINGS)
            async with asyncio.timeout(min(first * 2**doublings, most)):
                await self._stop_asked.wait()
        except TimeoutError:
            return False
        return True

    async def _one_life(self) -> None:
        """Returns when a stop was asked; raises `ModuleProblem` for every other end."""
        stop = asyncio.get_running_loop().create_task(self._stop_asked.wait())
        try:
            running = await self._launch(stop)
            if running is not None:
                await self._accompany(running, stop)
        finally:
            stop.cancel()

    async def _launch(self, stop: asyncio.Task[Any]) -> RunningModule | None:
        """None where a stop was asked before it was started."""
        launching = asyncio.get_running_loop().create_task(self._launcher.launch(self.config))
        await asyncio.wait((launching, stop), return_when=asyncio.FIRST_COMPLETED)
        if not launching.done():
            await cancel_and_wait(launching, ignore=InputError)
            if launching.cancelled():
                return None
        try:
            return launching.result()
        except InputError as error:
            final = error.code != "preflight_port"
            raise ModuleProblem(error.code, error.message, final=final) from None

    async def _accompany(self, running: RunningModule, stop: asyncio.Task[Any]) -> None:
        """No `finally`: a loop that is thrown away with its tasks cannot be waited in."""
        loop = asyncio.get_running_loop()
        self._running = running
        serving = loop.create_task(self._serve(running))
        ended = loop.create_task(running.exited())
        try:
            await asyncio.wait((serving, ended, stop), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self._leave(running, serving, ended)
            raise
        problem = None if stop.done() else self._end(serving, ended)
        await self._leave(running, serving, ended)
        if problem is not None:
            raise problem

    async def _leave(self, running: RunningModule, *tasks: asyncio.Task[Any]) -> None:
        """Stop routing to it, then end it."""
        self._healthy = False
        self._set("stopping")
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for task in tasks:  # `_end` has looked at it, or nothing wants to know any more
            if not task.cancelled():
                task.exception()
        await running.stop()
        self._running = None

    def _end(self, serving: asyncio.Task[None], ended: asyncio.Task[int]) -> ModuleProblem:
        if ended.done():
            code = ended.result()
            if code == 0 and self.ready_at is not None:
                return ModuleProblem("exited", "it ended with exit status 0")
            return ModuleProblem("crashed", f"it ended: {ending(code)}")
        error = serving.exception()
        if isinstance(error, ModuleProblem):
            return error
        logger.error("supervising the module %s failed", self.module, exc_info=error)
        return ModuleProblem("defect", "the node failed to supervise it", final=True)

    # -- from ready polling to health --------------------------------------------------------

    async def _serve(self, running: RunningModule) -> None:
        self.ready_at = None
        await self._poll_ready(running)
        await self._require_own_port(running)
        checked = await self._ask_report(running)
        self.conflicts = await self._accept(self.module, checked)
        self.report = checked
        for conflict in self.conflicts:
            self.note("route_conflict", conflict)
        self._healthy = True
        self.ready_at = self._clock.now()
        self._set("degraded" if self.conflicts else "ready")
        await self._watch_health(running)

    async def _poll_ready(self, running: RunningModule) -> None:
        """Without its token: it is not known yet who listens there."""
        http = self.config.http
        pause, most = READY_POLL_SECONDS
        try:
            async with asyncio.timeout(http.startup_timeout_ms / 1000):
                while not await self._good(running, http.ready_path):
                    await asyncio.sleep(pause)
                    pause = min(pause * 2, most)
        except TimeoutError:
            raise ModuleProblem(
                "startup_timeout",
                f"{http.ready_path} was not ready within {http.startup_timeout_ms} ms "
                "(http.startup_timeout_ms)",
            ) from None

    async def _good(self, running: RunningModule, path: str) -> bool:
        headers = self.config.http.headers
        try:
            answer = await running.transport.call("GET", path, None, headers, self._limits())
        except ModuleCallFailed:
            return False
        return answer.good

    async def _require_own_port(self, running: RunningModule) -> None:
        """Twice: a process that is about to end has let go of its port already, and its end is
        told within that time."""
        if await running.port_problem():
            await asyncio.sleep(PORT_AGAIN_SECONDS)
            if problem := await running.port_problem():
                raise ModuleProblem("foreign_port", problem, final=True)

    async def _ask_report(self, running: RunningModule) -> CheckedReport:
        try:
            answer = await running.transport.call(
                "POST", INIT_PATH, dict(self._init()), self._headers, self._limits()
            )
        except ModuleCallFailed as error:
            final = error.code.startswith("module_response_")
            raise ModuleProblem(
                _REPORT_CODES.get(error.code, error.code),
                f"{INIT_PATH}: {error.message}",
                final=final,
            ) from None
        if not answer.good:
            raise ModuleProblem("init_failed", f"{INIT_PATH} answered {answer.status}")
        try:
            return check_report(answer.body, self.module, self.config.http.invoke_path)
        except InputError as error:
            raise ModuleProblem(error.code, error.message, final=True) from None

    async def _watch_health(self, running: RunningModule) -> None:
        interval = self.config.http.health_interval_ms / 1000
        if not interval or self.config.kind == "in_process":
            await asyncio.get_running_loop().create_future()  # until the module ends
        while True:
            await asyncio.sleep(interval)
            await self._require_own_port(running)
            self._healthy = await self._good(running, self.config.http.health_path)
            if not self._healthy and self.state == "ready":
                self.note("unhealthy", f"{self.config.http.health_path} is not well")
            self._set("ready" if self._healthy and not self.conflicts else "degraded")

    def _set(self, state: ModuleState) -> None:
        if state != self.state:
            self.state = state
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()
