"""`anabranch.Client`: the methods of `Engine`, at a server.

    async with anabranch.Client("https://runs.example", token=token) as client:
        run = await client.start("order.yaml", {"order": 7})
        print((await client.wait(run)).status)

It asks with the same parts as the command line does with `--server`. Definitions and rules are
files of this machine; what a definition names (tools, participants, the catalog) is the server's.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

import msgspec

from anabranch import files
from anabranch.dialects.source import SourceLimits
from anabranch.errors import DefinitionError, InputError, NotFound
from anabranch.kernel import stimuli as s
from anabranch.literals import Reducer
from anabranch.operations.definitions.bundles import with_rules
from anabranch.operations.definitions.catalog import SUFFIXES, wanted
from anabranch.operations.definitions.prepare import TEXT, Prepared, Rules, Source, as_text, path_in
from anabranch.operations.read.event_view import EventRecord
from anabranch.operations.read.task_events import with_tasks
from anabranch.operations.runs.redrive_plan import RedrivePlan
from anabranch.operations.runs.signals import SignalSent, signal
from anabranch.operations.runs.verbs import decision, patches, skipping
from anabranch.run_result import RunResult
from anabranch.surfaces import client as http
from anabranch.surfaces.cli.backend.http.definitions import posted, renamed
from anabranch.surfaces.cli.backend.http.runs import HttpRunBackend
from anabranch.work.values.json_values import require_json

_RESULT = tuple(each.name for each in fields(RunResult))


class Client:
    """A server as an engine: use it with `async with`.

    `url` is that of the server, without a path. A token says by itself who asks; without one the
    server takes the word of `actor`, and of the `actor` of each call.
    """

    def __init__(self, url: str, *, token: str = "", actor: str = "") -> None:
        self._client = http.Client(url, token=token, actor=actor)
        self._is_open = False

    async def __aenter__(self) -> Client:
        await self._client.__aenter__()
        self._is_open = True
        return self

    async def __aexit__(self, *_exc: object) -> None:
        self._is_open = False
        await self._client.__aexit__()

    def _runs(self, actor: str = "") -> HttpRunBackend:
        if not self._is_open:
            raise RuntimeError("the client is not open: use it as `async with Client(...)`")
        return HttpRunBackend(self._client.acting(actor) if actor else self._client)

    # -- beginning ---------------------------------------------------------------------------

    async def start(
        self,
        definition: Source | Prepared,
        input: Mapping[str, Any] | None = None,  # noqa: A002 - the word users know
        *,
        run: str | None = None,
        step: str | None = None,
        labels: Mapping[str, str] | None = None,
        rules: Rules | None = None,
        allow_extra_input: bool = False,
        priority: int | None = None,
    ) -> str:
        """Begin a run; returns its id once it is durable.

        A text that is no definition names a file of this machine, or a path of the catalog of the
        server. `rules` are those of an orchestration: a folder, a bundle, or a mapping.
        """
        runs = self._runs()
        body, file = await _definition(definition, rules)
        body |= {"input": require_json(input or {}, "the input", root="input")}
        body |= {"labels": dict(labels or {}), "allow_extra_input": allow_extra_input}
        body |= {"run": run} if run is not None else {}
        body |= {"start": step} if step is not None else {}
        body |= {"priority": priority} if priority is not None else {}
        try:
            return await runs.start(body)
        except DefinitionError as error:
            raise renamed(error, file) from None

    async def redrive(
        self,
        run: str,
        *,
        from_step: str = "",
        again: bool = False,
        input: Mapping[str, Any] | None = None,  # noqa: A002 - the word users know
    ) -> str:
        """A linked run that redoes what failed and what depends on it, and keeps the rest.

        With `from_step` that step and what depends on it as well, however they ended. A run that
        another redrives already is refused without `again`. `input` are the secret inputs of the
        run once more, which no store keeps.
        """
        begun = await self._runs().redrive(run, from_step, again=again, secrets=dict(input or {}))
        return str(begun["run"])

    async def plan_redrive(self, run: str, *, from_step: str = "") -> RedrivePlan:
        """What `redrive` would run again, why, and what it would reuse; nothing is begun."""
        return await self._runs().plan_redrive(run, from_step)

    # -- looking -----------------------------------------------------------------------------

    async def wait(self, run: str, *, standing: bool = False) -> RunResult:
        """The run when it has finished; with `standing` also when only somebody can move it."""
        runs = self._runs()
        await runs.settled(run, standing=standing)
        shown = await runs.show(run)
        return RunResult(**{name: shown[name] for name in _RESULT if name in shown})

    async def events(
        self, run: str, after: int = 0, *, tasks: bool = False
    ) -> AsyncIterator[EventRecord]:
        """Every event of the run, from the log and then live, until it has finished. With `tasks`
        also `task.started` and `task.processed`, before the report of their job."""
        async for row, _began in self._runs().events(run, after, follow=True):
            record = msgspec.convert(row, EventRecord)
            for shown in with_tasks([record]) if tasks else (record,):
                yield shown

    # -- saying ------------------------------------------------------------------------------

    async def decide(
        self,
        run: str,
        gate: str,
        verdict: Literal["fulfil", "reject", "ask_again"],
        *,
        actor: str = "",
        reason: str = "",
        evidence: Any = None,
        override: bool = False,
    ) -> None:
        """Answer an open gate, by its id or its step.

        Where a declared source decides, `ask_again` asks it once more and `override` answers in its
        place.
        """
        said = decision(gate, verdict, actor, reason, evidence, override=override)
        await self._runs(actor).say(run, said)

    async def patch(
        self, run: str, values: Mapping[str, Any], *, reducer: Reducer = "set", actor: str = ""
    ) -> None:
        """Write to the context of the run; tokens held by admission are looked at again."""
        await self._runs(actor).say(run, s.PatchContext(patches(values, reducer), actor))

    async def signal(
        self,
        run: str,
        name: str,
        payload: Any = None,
        *,
        actor: str = "",
        ttl: float | str | None = None,
        id: str = "",  # noqa: A002 - the word users know
    ) -> SignalSent:
        """Send a signal to the run: a wait for this name takes it, or the run keeps it for one.

        `ttl` is how long it is kept: seconds, or text such as "1h"; without it, until the run ends.
        Sent again with the same `id` it is the same signal.
        """
        said = signal(name, payload, actor=actor, ttl=ttl, id=id)
        return (await self._runs(actor).signal(run, said))[0]

    async def retry(
        self, run: str, step: str, *, token: int = 0, actor: str = "", reason: str = ""
    ) -> None:
        """Try a step now that waits for its next try; `token` picks one of several runs of it."""
        await self._runs(actor).say(run, s.RetryNow(step, token, actor, reason))

    async def skip(
        self,
        run: str,
        step: str,
        *,
        token: int = 0,
        result: Any = msgspec.UNSET,
        actor: str = "",
        reason: str = "",
    ) -> None:
        """End a run of a step without its work: as skipped, or with a result as done."""
        await self._runs(actor).say(run, skipping(step, token, actor, reason, result))

    async def pause(self, run: str, *, actor: str = "", reason: str = "") -> None:
        """Begin no further work of the run; what is out may finish."""
        await self._runs(actor).say(run, s.Pause(actor, reason))

    async def resume(self, run: str, *, actor: str = "") -> None:
        """Go on with a paused run."""
        await self._runs(actor).say(run, s.Resume(actor))

    async def cancel(self, run: str, *, actor: str = "", reason: str = "") -> None:
        """End the run: work that is out is told to stop, and nothing else begins."""
        await self._runs(actor).say(run, s.Cancel(actor, reason))


async def _definition(source: Source | Prepared, rules: Rules | None) -> tuple[dict[str, Any], str]:
    """What names the definition in a request, and what its file is called here."""
    if isinstance(source, Prepared):
        return posted(source.definition.source, TEXT), TEXT
    path, origin = path_in(source), TEXT
    if path is None:
        text = as_text(source)
    elif rules is None and isinstance(source, str) and not path.exists():
        return _in_catalog(source), source
    else:
        origin = str(path)
        most = SourceLimits().bytes_max
        content = await files.in_thread(lambda: files.read_limited(path, most), path)
        try:
            text = content.decode()
        except UnicodeDecodeError:
            raise InputError(f"{path} is not text", code="no_file") from None
    return posted(text if rules is None else with_rules(text, origin, rules), origin), origin


def _in_catalog(path: str) -> dict[str, Any]:
    asked = wanted(path)
    if not asked.only_here and asked.path.endswith(SUFFIXES):
        raise NotFound(f"there is no file {Path(path)}", code="no_file")
    if asked.id is not None:
        return {"catalog_id": asked.id}
    return {"path": asked.path, **({"version": asked.version} if asked.version else {})}
