"""Local routes under /v1/enact/ that modules claim, and calls that nothing of the node answers.

One module owns a method and path; a second claim of it is refused, and so is one that overlaps with
it: `arca/runs/{run}` and `arca/runs/last`. A route without names comes before those with names that
its module has. Claims are kept, so that a route whose owner is not ready yet (or no longer) answers
503 and not 404. The owner is asked with a `local-input-invoke.v1`, unless another module of the
chain inbound-local has decided before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from anabranch.clock import Clock
from anabranch.market.node.api import Answer, Call
from anabranch.market.node.entities import Change, Entities, Family
from anabranch.market.node.errors import NodeError
from anabranch.market.node.modules.chains import Chains, Decision
from anabranch.market.node.modules.reports import (
    ROUTES_UNDER,
    Chain,
    CheckedReport,
    Route,
    fits,
    has_names,
    overlap,
)
from anabranch.market.node.modules.supervisor import SupervisedModule

RETRY_AFTER_SECONDS = 2
MODULES_MAX = 10_000
#: Headers of a caller that a module gets to see: none that could carry a secret.
_PASSED_IN = {
    "accept", "accept-language", "content-type", "user-agent", "if-none-match", "idempotency-key",
    "x-request-id",
}  # fmt: skip
_PASSED_OUT = {"cache-control", "etag", "last-modified", "retry-after", "link", "location"}


class RoutesClaimed(msgspec.Struct, frozen=True, tag="routes-claimed"):
    routes: list[Route]


class ClaimedRoutes(msgspec.Struct, frozen=True):
    routes: list[Route] = []


def _evolve(_state: ClaimedRoutes | None, event: RoutesClaimed) -> ClaimedRoutes:
    return ClaimedRoutes(event.routes)


CLAIMS: Family[ClaimedRoutes] = Family("module-routes", ClaimedRoutes, RoutesClaimed, _evolve)


class Claims:
    """Which module owns which route."""

    def __init__(self, entities: Entities) -> None:
        self._entities = entities
        self._owners: dict[Route, str] = {}

    async def restore(self, modules: Mapping[str, SupervisedModule]) -> None:
        """What the configured modules owned when the node was open last; others let go of it."""
        known = await self._entities.listed(CLAIMS, limit=MODULES_MAX)
        with self._entities.change() as change:
            for module, claimed, _ in known:
                if module in modules:
                    self._owners.update(dict.fromkeys(claimed.routes, module))
                elif claimed.routes:
                    change.add(CLAIMS, module, RoutesClaimed([]))

    def claim(self, change: Change, module: str, report: CheckedReport) -> list[str]:
        """Replace the claims of a module; says which of them another one owns."""
        wanted = [route for chain in report.chains for route in chain.routes]
        taken = {route: other for route in wanted if (other := self._rival(route, module))}
        own = [route for route in wanted if route not in taken]
        if own != self.of(module):
            change.add(CLAIMS, module, RoutesClaimed(own))
            for route in self.of(module):
                del self._owners[route]
            self._owners.update(dict.fromkeys(own, module))
        return [
            f"{' '.join(route)} is owned by the module {self._owners[other]}"
            for route, other in taken.items()
        ]

    def _rival(self, route: Route, module: str) -> Route | None:
        """A route of another module that would take calls of this one."""
        return next(
            (one for one, owner in self._owners.items() if owner != module and overlap(one, route)),
            None,
        )

    def find(self, method: str, path: str) -> tuple[Route, str] | None:
        """The route that takes this call, and its owner."""
        exact = self._owners.get((method, path))
        if exact is not None:
            return (method, path), exact
        return next(
            (
                (route, owner)
                for route, owner in self._owners.items()
                if route[0] == method and has_names(route[1]) and fits(route[1], path)
            ),
            None,
        )

    def of(self, module: str) -> list[Route]:
        return [route for route, owner in self._owners.items() if owner == module]

    def methods(self, path: str) -> list[str]:
        return sorted({method for method, claimed in self._owners if fits(claimed, path)})


class LocalRoutes:
    """Handles what no endpoint of the node does."""

    def __init__(
        self,
        modules: Mapping[str, SupervisedModule],
        claims: Claims,
        chains: Chains,
        clock: Clock,
    ) -> None:
        self._modules = modules
        self._claims = claims
        self._chains = chains
        self._clock = clock
        self._calls = 0

    async def handle(self, call: Call) -> Answer:
        if not call.path.startswith(ROUTES_UNDER):
            raise NodeError(404, "not_found", f"there is nothing at {call.path[:200]}")
        if call.caller.scope == "open":
            raise NodeError(401, "unauthorized", "a token is needed for this")
        if call.caller.scope == "peer":
            raise NodeError(403, "forbidden", "this is not for the peer")
        found = self._claims.find(call.method, call.path)
        return await (self._unclaimed(call) if found is None else self._owned(call, *found))

    async def _owned(self, call: Call, route: Route, owner: str) -> Answer:
        module, chain = self._ready_owner(call, route, owner)
        envelope = self._envelope(call)
        if chain.generic:
            decided = await self._generic(envelope, (owner, chain))
            if decided is not None:
                return decided
        decision = await self._chains.ask(module, chain.invoke_path, envelope)
        answer = None if decision is None else _answered(module, decision)
        if answer is None:
            raise NodeError(
                502, "module_failed", f"the module {owner} gave no answer for {call.path[:200]}"
            )
        return answer

    def _ready_owner(self, call: Call, route: Route, owner: str) -> tuple[SupervisedModule, Chain]:
        module = self._modules[owner]
        if module.routable and module.report is not None:
            for chain in module.report.chains:
                if route in chain.routes:
                    return module, chain
        raise NodeError(
            503,
            "module_not_ready",
            f"the module {owner} that answers {call.path[:200]} is {module.state}",
            headers={"Retry-After": str(RETRY_AFTER_SECONDS)},
        )

    async def _unclaimed(self, call: Call) -> Answer:
        if methods := self._claims.methods(call.path):
            allowed = {"Allow": ", ".join(methods)}
            said = f"{call.path[:200]} takes no {call.method[:20]}"
            raise NodeError(405, "method", said, headers=allowed)
        decided = await self._generic(self._envelope(call), None)
        if decided is None:
            raise NodeError(404, "not_found", f"there is nothing at {call.path[:200]}")
        return decided

    async def _generic(
        self, envelope: dict[str, Any], owner: tuple[str, Chain] | None
    ) -> Answer | None:
        """Ask the chain inbound-local; what it rewrites is rewritten in the envelope."""
        for module, chain in self._chains.entries("inbound-local"):
            if not chain.generic or (module.module, chain) == owner:
                continue
            if not chain.fits(f"{envelope['method']} {envelope['path']}", envelope["body"]):
                continue
            decision = await self._chains.ask(module, chain.invoke_path, envelope)
            if decision is None:
                continue
            if decision.decision == "rewrite":
                _rewrite(module, envelope, decision)
            elif (answer := _answered(module, decision)) is not None:
                return answer
        return None

    def _envelope(self, call: Call) -> dict[str, Any]:
        """local-input-invoke.v1"""
        caller: dict[str, str] = {"scope": call.caller.scope}
        if call.caller.module:
            caller["module_id"] = call.caller.module
        return {
            "schema_version": "v1",
            "envelope_kind": "local-input",
            "chain_kind": "inbound-local",
            "correlation_id": self._correlation(call),
            "method": call.method,
            "path": call.path,
            "query": dict(call.query),
            "headers": {k: v for k, v in call.headers.items() if k in _PASSED_IN},
            "body": call.body,
            "caller": caller,
        }

    def _correlation(self, call: Call) -> str:
        self._calls += 1
        parts = (call.method, call.path, str(self._clock.now()), str(self._calls))
        return (
            "local:" + hashlib.sha256("\n".join(parts).encode("utf-8", "replace")).hexdigest()[:32]
        )


class _Patch(msgspec.Struct, frozen=True):
    """What `return` puts in the place of an answer."""

    status: int = 200
    headers: dict[str, str] = {}
    body: Any = None


def _answered(module: SupervisedModule, decision: Decision) -> Answer | None:
    if decision.decision == "reject":
        raise NodeError(403, "rejected", decision.reason[:1024])
    if decision.decision != "return":
        return None
    try:
        patch = msgspec.convert(decision.patch, _Patch)
    except msgspec.ValidationError as error:
        module.note("decision_invalid", f"patch: {error}")
        return None
    if not 200 <= patch.status <= 599:
        module.note("decision_invalid", f"patch: the status {patch.status} is no answer")
        return None
    headers = {
        name: value
        for name, value in patch.headers.items()
        if name.lower() in _PASSED_OUT and value.isprintable()
    }
    return Answer(status=patch.status, body=patch.body, headers=headers)


def _rewrite(module: SupervisedModule, envelope: dict[str, Any], decision: Decision) -> None:
    if isinstance(decision.patch, dict) and "body" in decision.patch:
        envelope["body"] = decision.patch["body"]
    else:
        module.note("decision_invalid", "patch: rewrite needs a body")
