"""The OpenAPI document of a node keeps its word: a real node is asked everything it promises."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, get_args

import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi import checks as openapi_checks

from anabranch.market.node.api import Endpoint
from anabranch.market.node.modules.api.notifications import Level
from anabranch.market.node.modules.api.run_shapes import RunStatus
from anabranch.market.node.parameters import LEVELS, PATH, QUERY, RUN_STATUSES
from anabranch.surfaces.http.node.answers import ANSWERS, ANY_BODY, BODIES
from anabranch.surfaces.http.node.openapi import node_document
from anabranch.testing.market import World
from hangs import HANG_SECONDS
from seeds import seeds

from ..promises import Choice, schema_of
from .background import BackgroundNode

_NODE = World(["n"])["n"].node
assert _NODE is not None
ENDPOINTS: tuple[Endpoint, ...] = _NODE.api.endpoints
WHOLE = node_document(ENDPOINTS)

# -- the document itself ---------------------------------------------------------------------------


def test_every_endpoint_is_in_the_document_with_who_may_call_it() -> None:
    said = {
        (method.upper(), path): set(operation["x-scope"])
        for path, methods in WHOLE["paths"].items()
        for method, operation in methods.items()
    }
    table = {(one.method, one.path.replace("*}", "}")): set(one.scopes) for one in ENDPOINTS}
    assert said == table


def test_no_two_operations_have_one_name() -> None:
    names = [one["operationId"] for path in WHOLE["paths"].values() for one in path.values()]
    assert len(names) == len(set(names))


def test_every_reference_leads_to_a_schema() -> None:
    known = {f"#/components/schemas/{name}" for name in WHOLE["components"]["schemas"]}
    assert set(re.findall(r'"(#/components/[^"]+)"', json.dumps(WHOLE))) <= known


def test_every_example_of_a_body_fits_its_type() -> None:
    examples = [one for one in ENDPOINTS if one.body is not None and one.example is not None]
    assert examples
    for one in examples:
        msgspec.convert(one.example, one.body)


def test_every_parameter_is_explained() -> None:
    named = {name for one in ENDPOINTS for name in re.findall(r"{(\w+)\*?}", one.path)}
    assert named <= set(PATH)
    assert {name for one in ENDPOINTS for name in one.query} <= set(QUERY)


def test_what_is_described_besides_the_table_is_in_the_table() -> None:
    table = {f"{one.method} {one.path}" for one in ENDPOINTS}
    assert {*ANSWERS, *BODIES, *ANY_BODY} <= table


def test_choices_of_parameters_are_those_of_what_they_select() -> None:
    assert get_args(Level) == LEVELS
    assert {"active", *get_args(RunStatus)} == set(RUN_STATUSES)


def test_everything_that_is_refused_has_one_shape() -> None:
    problem = {"$ref": "#/components/schemas/ProblemDocument"}
    for path in WHOLE["paths"].values():
        for operation in path.values():
            for status, response in operation["responses"].items():
                if int(status) >= 400:
                    assert response["content"] == {"application/problem+json": {"schema": problem}}


# -- what the node really does ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackgroundNode]:
    with BackgroundNode(tmp_path_factory.mktemp("node")) as running:
        yield running


PARTS = 4  # that run side by side
CALLERS = ("operator", "module", "open")
_paths: set[str] = set()  # of the part whose test runs
_caller: list[str] = []  # who calls in it
CHOICE = Choice()


@pytest.fixture(params=[f"{who}-{part}" for who in CALLERS for part in range(PARTS)])
def promised(request: pytest.FixtureRequest) -> Any:
    """The cases of a path are made when its test runs: every process that collects tests would
    make all of them."""
    request.node._nodeid = request.node.nodeid  # schemathesis looks there; pytest 9 has it not
    who, _, part = request.param.partition("-")
    _caller[:] = [who]
    _paths.clear()
    _paths.update(list(WHOLE["paths"])[int(part) :: PARTS])
    return schema_of(WHOLE)


def _is_asked(context: Any) -> bool:
    """By those who may; that others are refused is in `test_access.py`."""
    scopes = context.operation.definition.raw["x-scope"]
    return context.operation.path in _paths and _caller[0] in scopes


schema = schemathesis.pytest.from_fixture("promised").include(_is_asked)


def defect_check(_context: Any, response: Any, case: Any) -> None:
    """502 and 503 are what others do; the document says where."""
    assert response.status_code != 500, case.operation.label


CHECKS = [
    defect_check,
    openapi_checks.status_code_conformance,
    openapi_checks.content_type_conformance,
    openapi_checks.response_headers_conformance,
    openapi_checks.response_schema_conformance,
    openapi_checks.negative_data_rejection,
    openapi_checks.unsupported_method,
]


@pytest.mark.slow
@schema.parametrize()
@settings(
    max_examples=len(seeds(20, least=2)),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
def test_the_node_does_what_the_document_says(case: Any, node: BackgroundNode) -> None:
    caller = _caller[0]
    if CHOICE.has(case, caller):
        case.call_and_validate(
            base_url=node.url, checks=CHECKS, headers=node.headers[caller], timeout=HANG_SECONDS
        )
