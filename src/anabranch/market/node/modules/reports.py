"""What a module says of itself after `init`, checked and compiled. It grants nothing.

The report names chains, routes, handlers and surfaces; who the module is stands in the
configuration, and a report with another id is refused as a whole.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any, Literal

import msgspec

from anabranch.errors import InputError
from anabranch.market.node.modules.config import DEFAULT_INVOKE, is_module_path
from anabranch.market.node.modules.filters import Filter, compile_filter

ChainKind = Literal[
    "pre-input", "inbound-peer", "inbound-broadcast", "inbound-local", "pre-send", "audit"
]
OBSERVED: frozenset[str] = frozenset({"pre-input", "inbound-peer", "pre-send"})
ROUTES_UNDER = "/v1/enact/"
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
ENTRIES_MAX = 256

Route = tuple[str, str]  # METHOD and path; `{name}` in it stands for any one part
_NAMED = re.compile(r"\{[a-z_]{1,32}\}")


class Capability(msgspec.Struct, frozen=True):
    capability_id: str
    class_: Literal["base", "other"] = msgspec.field(name="class", default="other")
    description: str = ""
    output_contract_ref: str = ""


class ChainEntry(msgspec.Struct, frozen=True):
    """One of `input_chains`, as reported."""

    chain: ChainKind
    message_types: list[str] = []
    filter: Any = None
    invoke_path: str = ""
    local_routes: list[Any] | None = None
    skip_generic_chain: bool | None = None
    observer: bool | None = None


class CapabilityHandlerEntry(msgspec.Struct, frozen=True):
    capability_id: str
    invoke_path: str = DEFAULT_INVOKE


class CatalogEndpoint(msgspec.Struct, frozen=True):
    catalog_kind: str
    path: str


class WorkflowKindHandler(msgspec.Struct, frozen=True):
    workflow_kind: str
    plan_schema_path: str = ""


class OperatorSurface(msgspec.Struct, frozen=True):
    surface_id: str
    label: str = ""
    description: str = ""
    rendering: Literal["host-mediated", "server-html"] = "host-mediated"
    entry_path: str = ""
    nav_group: str = ""
    nav_entries: list[Any] = []
    required_capabilities: list[str] = []


class ModuleReport(msgspec.Struct, frozen=True):
    """middleware-module-report; keys that are not known here are left alone."""

    schema_version: Literal["v1"]
    module_id: str
    module_name: str = ""
    module_description: str = ""
    module_role: str = ""
    module_version: str = ""
    middleware_contract_version: str = ""
    host_api_version: str = ""
    capabilities: list[Capability] = []
    handles_service_types: list[str] = []
    handles_workflow_kinds: list[str] = []
    workflow_kind_handlers: list[WorkflowKindHandler] = []
    input_chains: list[ChainEntry] = []
    observe_chains: list[ChainEntry] = []
    host_capability_handlers: list[CapabilityHandlerEntry] = []
    catalog_endpoints: list[CatalogEndpoint] = []
    operator_surfaces: list[OperatorSurface] = []
    readiness_requirements: list[Any] = []
    handles_peer_message_types: list[str] = []  # these three: the older way to say a chain
    peer_message_filter: Any = None
    peer_message_phase: Literal["pre-input", "inbound-peer"] = "inbound-peer"


class Chain(msgspec.Struct, frozen=True):
    """A chain of a module, ready to be asked."""

    kind: ChainKind
    invoke_path: str
    fits: Filter
    observer: bool = False
    generic: bool = True  # asked about every message that fits; else only about its routes
    routes: tuple[Route, ...] = ()


class CheckedReport(msgspec.Struct, frozen=True):
    report: ModuleReport
    chains: tuple[Chain, ...]
    handlers: Mapping[str, str]  # capability id → path


def check_report(document: Any, module: str, invoke_path: str) -> CheckedReport:
    """Raises `InputError`; its code says what kind of thing is wrong, its message which."""
    try:
        report = msgspec.convert(document, ModuleReport)
    except msgspec.ValidationError as error:
        raise InputError(f"the module report does not fit: {error}", code="report_schema") from None
    if report.module_id != module:
        raise InputError(
            f"the report is of the module {report.module_id[:80]!r}, and {module!r} is configured",
            code="report_module_id",
        )
    _require_short(report)
    chains = [
        *(_chain(entry, at, invoke_path, "input_chains")
          for at, entry in enumerate(report.input_chains)),
        *(_chain(msgspec.structs.replace(entry, observer=True), at, invoke_path, "observe_chains")
          for at, entry in enumerate(report.observe_chains)),
        *_older(report, invoke_path),
    ]  # fmt: skip
    _require_routes_once(chains)
    return CheckedReport(report, tuple(chains), _handlers(report.host_capability_handlers))


def route_of(given: Any) -> Route:
    """`GET service-catalog`, or the same as an object; without a method it is a GET. Raises
    `InputError`."""
    method: Any
    path: Any
    if isinstance(given, str):
        method, _, path = given.rpartition(" ")
        method = method or "GET"
    elif isinstance(given, dict):
        method, path = given.get("method", "GET"), given.get("path")
    else:
        method = path = None
    if method not in METHODS or not isinstance(path, str) or not path:
        raise InputError(
            'a local route is {"method": "GET", "path": "service-catalog"}', code="report_route"
        )
    full = path if path.startswith("/") else ROUTES_UNDER + path
    if not full.startswith(ROUTES_UNDER) or not is_module_path(_without_names(full)):
        raise InputError(
            f"the route {full[:200]!r} is not under {ROUTES_UNDER}", code="report_route"
        )
    return method, full


def has_names(path: str) -> bool:
    return any(_NAMED.fullmatch(part) for part in path.split("/"))


def fits(pattern: str, path: str) -> bool:
    """Whether a path is one of those that a pattern stands for."""
    return _agree(pattern.split("/"), path.split("/"), names_on_both=False)


def overlap(one: Route, other: Route) -> bool:
    """Whether there is a call that both routes would take."""
    return one[0] == other[0] and _agree(one[1].split("/"), other[1].split("/"), names_on_both=True)


def _agree(pattern: Sequence[str], path: Sequence[str], *, names_on_both: bool) -> bool:
    return len(pattern) == len(path) and all(
        mine == theirs
        or (bool(theirs) and _NAMED.fullmatch(mine) is not None)
        or (names_on_both and _NAMED.fullmatch(theirs) is not None)
        for mine, theirs in zip(pattern, path, strict=True)
    )


def _without_names(path: str) -> str:
    return "/".join("x" if _NAMED.fullmatch(part) else part for part in path.split("/"))


def _chain(entry: ChainEntry, at: int, invoke_path: str, where: str) -> Chain:
    try:
        return _checked_chain(entry, invoke_path)
    except InputError as error:
        raise InputError(f"{where}[{at}]: {error.message}", code=error.code) from None


def _checked_chain(entry: ChainEntry, invoke_path: str) -> Chain:
    local = entry.chain == "inbound-local"
    if not local and (entry.local_routes is not None or entry.skip_generic_chain is not None):
        raise InputError(
            "local_routes and skip_generic_chain are for the chain inbound-local alone",
            code="report_chain",
        )
    if entry.observer and entry.chain not in OBSERVED:
        raise InputError(f"the chain {entry.chain} takes no observers", code="report_chain")
    path = entry.invoke_path or invoke_path
    if not is_module_path(path):
        raise InputError(f"invoke_path {path[:200]!r} is not a path", code="report_chain")
    selective = bool(entry.message_types) or entry.filter is not None
    skip = entry.skip_generic_chain
    if skip is None:
        skip = bool(entry.local_routes) and not selective
    return Chain(
        kind=entry.chain,
        invoke_path=path,
        fits=_fits(entry.message_types, entry.filter),
        observer=bool(entry.observer),
        generic=not skip,
        routes=tuple(dict.fromkeys(route_of(one) for one in entry.local_routes or ())),
    )


def _fits(types: Sequence[str], tree: Any) -> Filter:
    kinds = frozenset(types)
    if tree is None:
        return lambda msg, _payload: not kinds or msg in kinds
    tree_fits = compile_filter(tree)
    return lambda msg, payload: (not kinds or msg in kinds) and tree_fits(msg, payload)


def _older(report: ModuleReport, invoke_path: str) -> list[Chain]:
    """`handles_peer_message_types`, as a chain."""
    if not report.handles_peer_message_types and report.peer_message_filter is None:
        return []
    entry = ChainEntry(
        chain=report.peer_message_phase,
        message_types=report.handles_peer_message_types,
        filter=report.peer_message_filter,
    )
    try:
        return [_checked_chain(entry, invoke_path)]
    except InputError as error:
        raise InputError(f"peer_message_filter: {error.message}", code=error.code) from None


def _handlers(entries: Sequence[CapabilityHandlerEntry]) -> dict[str, str]:
    handlers: dict[str, str] = {}
    for at, entry in enumerate(entries):
        where = f"host_capability_handlers[{at}]"
        if not entry.capability_id or entry.capability_id in handlers:
            raise InputError(f"{where}: capability_id is empty or twice", code="report_handler")
        if not is_module_path(entry.invoke_path):
            raise InputError(f"{where}: invoke_path is not a path", code="report_handler")
        handlers[entry.capability_id] = entry.invoke_path
    return handlers


def _require_short(report: ModuleReport) -> None:
    for field in msgspec.structs.fields(report):
        value = getattr(report, field.name)
        if isinstance(value, list) and len(value) > ENTRIES_MAX:
            raise InputError(
                f"{field.name} has at most {ENTRIES_MAX} entries", code="report_too_large"
            )
    for at, capability in enumerate(report.capabilities):
        if capability.class_ == "base" and not capability.output_contract_ref:
            raise InputError(
                f"capabilities[{at}]: a base capability needs an output_contract_ref",
                code="report_schema",
            )


def _require_routes_once(chains: Sequence[Chain]) -> None:
    routes = Counter(route for chain in chains for route in chain.routes)
    if len(routes) > ENTRIES_MAX:
        raise InputError(f"a module has at most {ENTRIES_MAX} local routes", code="report_route")
    for route, times in routes.items():
        if times > 1:
            raise InputError(f"two chains claim {' '.join(route)}", code="report_route")
    for (first, route), (second, other) in combinations(_named_routes(chains), 2):
        if first != second and overlap(route, other):
            said = f"two chains claim {' '.join(route)} and {' '.join(other)}, which overlap"
            raise InputError(said, code="report_route")


def _named_routes(chains: Sequence[Chain]) -> Iterable[tuple[int, Route]]:
    """Those with names, with the number of their chain."""
    return (
        (at, route)
        for at, chain in enumerate(chains)
        for route in chain.routes
        if has_names(route[1])
    )
