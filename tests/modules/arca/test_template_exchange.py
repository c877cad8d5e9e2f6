"""Templates of other nodes: shown with their publisher before they are kept, or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from anabranch.errors import AnabranchError
from anabranch.market.identities import SigningKey, is_signed_by
from anabranch.modules.arca.template_catalog import records
from anabranch.testing.market import NodeSpec, World, WorldNode, check_laws
from anabranch.testing.market.disk import Died
from anabranch.testing.market.nodes import WorldSigner
from in_loop import in_loop

from .template_module import Liar, asked, template, world

KEY = SigningKey.from_seed(b"p" * 32)
OTHER = SigningKey.from_seed(b"q" * 32)
PUBLISHER = KEY.identity("participant")
#: The nodes of these worlds have the same keys every time.
B = WorldSigner(NodeSpec(name="b"))


def published(by: SigningKey = KEY, **changes: Any) -> dict[str, Any]:
    document = {"schema": "workflow-template.v1", "participant_id": PUBLISHER, **template()}
    return by.sign({**document, **changes})


async def publish(node: WorldNode, document: dict[str, Any] | None = None) -> Any:
    given = document or template()
    await asked(node, "POST", "", given)
    path = f"/{given['template_id']}/publish"
    return (await asked(node, "POST", path, {"publish": True})).body


def wanted(world_: World, template_id: str = "weekly.v1", **more: Any) -> dict[str, Any]:
    return {"node_id": world_["b"].node_id, "template_id": template_id, **more}


async def ids(node: WorldNode) -> list[str]:
    return [one["template_id"] for one in (await asked(node, "GET")).body["items"]]


# -- publishing ----------------------------------------------------------------------------------


@in_loop
async def test_a_template_is_private_until_the_operator_publishes_it() -> None:
    async with world("a", "b") as nodes:
        await asked(nodes["b"], "POST", "", template())
        node = {"node_id": nodes["b"].node_id}
        assert (await asked(nodes["a"], "POST", "/browse", node)).body["templates"] == []
        hidden = await asked(nodes["a"], "POST", "/import/preview", wanted(nodes))
        assert (hidden.status, hidden.body["code"]) == (404, "template_not_found")
        public = await publish(nodes["b"])
        assert public["public"]
        (row,) = (await asked(nodes["a"], "POST", "/browse", node)).body["templates"]
        assert (row["template_id"], row["digest"]) == ("weekly.v1", public["digest"])
        assert (row["publisher"], row["label"]) == (B.participant_id, "Weekly")
        await asked(nodes["b"], "POST", "/weekly.v1/publish", {"publish": False})
        assert (await asked(nodes["a"], "POST", "/browse", node)).body["templates"] == []
        again = await asked(nodes["a"], "POST", "/import/preview", wanted(nodes))
        assert again.status == 404


@in_loop
async def test_a_public_template_does_not_change_under_its_id() -> None:
    async with world("b") as nodes:
        node = nodes["b"]
        first = await publish(node)
        assert (await publish(node))["digest"] == first["digest"]
        changed = await asked(node, "POST", "", template(label="Other"))
        assert (changed.status, changed.body["code"]) == (409, "template_is_public")
        assert (await asked(node, "GET", "/weekly.v1")).body["label"] == "Weekly"
        await asked(node, "POST", "/weekly.v1/publish", {"publish": False})
        assert (await asked(node, "POST", "", template(label="Other"))).status == 200


@in_loop
async def test_a_deleted_template_is_no_longer_public_also_after_it_is_put_again() -> None:
    async with world("a", "b") as nodes:
        await publish(nodes["b"])
        await asked(nodes["b"], "DELETE", "/weekly.v1")
        assert (await asked(nodes["a"], "POST", "/import/preview", wanted(nodes))).status == 404
        await asked(nodes["b"], "POST", "", template())
        assert not (await asked(nodes["b"], "GET", "/weekly.v1")).body["public"]
        assert (await asked(nodes["a"], "POST", "/import/preview", wanted(nodes))).status == 404


@pytest.mark.parametrize(
    ("document", "code"),
    [
        (published(), "other_publisher"),
        (template(input={"share": 0.5}), "not_signable"),
    ],
)
@in_loop
async def test_what_the_host_does_not_sign_stays_private(document: Any, code: str) -> None:
    async with world("b") as nodes:
        node = nodes["b"]
        assert (await asked(node, "POST", "", document)).status == 201
        refused = await asked(node, "POST", "/weekly.v1/publish", {"publish": True})
        assert refused.body["code"] == code
        assert refused.status in (400, 403)
        assert not (await asked(node, "GET", "/weekly.v1")).body["public"]


@in_loop
async def test_pages_of_public_templates_follow_one_another() -> None:
    async with world("a", "b") as nodes:
        for number in range(5):
            await publish(nodes["b"], template(f"t{number}.v1"))
        found, after = [], ""
        for _ in range(5):
            body = {"node_id": nodes["b"].node_id, "limit": 2, "after": after}
            page = (await asked(nodes["a"], "POST", "/browse", body)).body
            found += [row["template_id"] for row in page["templates"]]
            after = page.get("next", "")
            if not after:
                break
        assert found == [f"t{number}.v1" for number in range(5)]


# -- importing -----------------------------------------------------------------------------------


@in_loop
async def test_an_import_keeps_what_was_looked_at_with_the_signature_of_its_publisher() -> None:
    async with world("a", "b") as nodes:
        await publish(nodes["b"])
        seen = (await asked(nodes["a"], "POST", "/import/preview", wanted(nodes))).body
        assert (seen["publisher"], seen["signature"]) == (nodes["b"].participant_id, "valid")
        assert (seen["here"], seen["importable"], seen["problems"]) == ("absent", True, [])
        assert await ids(nodes["a"]) == []
        body = wanted(nodes, digest=seen["digest"], publisher=seen["publisher"])
        kept = await asked(nodes["a"], "POST", "/import", body)
        assert (kept.status, kept.body["status"]) == (201, "imported")
        shown = (await asked(nodes["a"], "GET", "/weekly.v1")).body
        assert shown["template"] == seen["template"]
        assert is_signed_by(shown["template"], nodes["b"].participant_id)
        assert shown["imported"] == {
            "node_id": nodes["b"].node_id,
            "publisher": nodes["b"].participant_id,
            "digest": seen["digest"],
        }
        again = await asked(nodes["a"], "POST", "/import", body)
        assert (again.status, again.body["status"]) == (200, "unchanged")
        given = {"template_id": "weekly.v1", "parameters": {"topic": "x"}}
        assert (await asked(nodes["a"], "POST", "/materialize", given)).status == 200
        assert check_laws(nodes) == []


@in_loop
async def test_the_directory_says_whether_the_publisher_runs_the_node() -> None:
    async with world("b", "a") as nodes:
        await publish(nodes["b"])
        seen = (await asked(nodes["a"], "POST", "/import/preview", wanted(nodes))).body
        assert seen["publisher_runs_node"] is False, "nothing says so yet"
        capability = {"capability_id": "offer-catalog"}
        await nodes["b"].request("POST", "/v1/passports", capability)
        await nodes.advance(120)
        seen = (await asked(nodes["a"], "POST", "/import/preview", wanted(nodes))).body
        assert seen["publisher_runs_node"] is True


@in_loop
async def test_a_template_that_changed_since_it_was_looked_at_is_not_kept() -> None:
    async with world("a", "b") as nodes:
        await publish(nodes["b"])
        seen = (await asked(nodes["a"], "POST", "/import/preview", wanted(nodes))).body
        await asked(nodes["b"], "POST", "/weekly.v1/publish", {"publish": False})
        await publish(nodes["b"], template(label="Another plan"))
        refused = await asked(nodes["a"], "POST", "/import", wanted(nodes, digest=seen["digest"]))
        assert (refused.status, refused.body["code"]) == (409, "template_changed")
        assert await ids(nodes["a"]) == []


@in_loop
async def test_a_template_of_the_same_id_is_not_replaced_by_an_import() -> None:
    async with world("a", "b") as nodes:
        await publish(nodes["b"])
        await asked(nodes["a"], "POST", "", template(label="Mine"))
        seen = (await asked(nodes["a"], "POST", "/import/preview", wanted(nodes))).body
        assert (seen["here"], seen["importable"]) == ("other", False)
        refused = await asked(nodes["a"], "POST", "/import", wanted(nodes, digest=seen["digest"]))
        assert (refused.status, refused.body["code"]) == (409, "template_exists")
        assert (await asked(nodes["a"], "GET", "/weekly.v1")).body["label"] == "Mine"


@in_loop
async def test_an_imported_template_that_is_changed_here_is_no_import_any_more() -> None:
    async with world("a", "b") as nodes:
        digest = (await publish(nodes["b"]))["digest"]
        await asked(nodes["a"], "POST", "/import", wanted(nodes, digest=digest))
        await asked(nodes["a"], "POST", "", template(label="Mine"))
        assert (await asked(nodes["a"], "GET", "/weekly.v1")).body["imported"] is None


@in_loop
async def test_an_import_needs_room(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world("a", "b") as nodes:
        digest = (await publish(nodes["b"]))["digest"]
        monkeypatch.setattr(records, "TEMPLATES_MAX", 0)
        refused = await asked(nodes["a"], "POST", "/import", wanted(nodes, digest=digest))
        assert (refused.status, refused.body["code"]) == (409, "too_many_templates")
        assert await ids(nodes["a"]) == []


@in_loop
async def test_an_import_that_a_crash_cut_off_is_done_by_the_next_one() -> None:
    async with world("a", "b") as nodes:
        digest = (await publish(nodes["b"]))["digest"]
        body, node = wanted(nodes, digest=digest), nodes["a"]
        last = node.commits + 1  # it writes the note of the import, and dies before the template

        def dies(when: str, number: int) -> None:
            if (when, number) == ("after", last):
                raise Died(9)

        node.on_commit = dies
        with pytest.raises(AnabranchError):
            await asked(node, "POST", "/import", body)
        node.on_commit = lambda _when, _number: None
        node.start()
        note = {"record_kind": records.IMPORT, "record_id": "weekly.v1"}
        said = {"schema_version": "v1", "capability_id": "module_store_get", **note}
        path = "/v1/module/store/records/get"
        assert (await node.request("POST", path, said, as_="arca")).body["outcome"] == "found"
        assert await ids(node) == [], "the note of an import alone is no template"
        assert (await asked(node, "POST", "/import", body)).status == 201
        assert await ids(node) == ["weekly.v1"]


# -- nodes that lie ------------------------------------------------------------------------------

Said = Callable[[dict[str, Any]], Any]


def with_template(document: Any) -> Said:
    return lambda request: {
        "schema_version": "v1",
        "query_id": request["query_id"],
        "template": document,
    }


def liar(said: Said) -> World:
    return world("a", b=lambda _call: Liar(said))


@pytest.mark.parametrize(
    ("document", "verdict", "code"),
    [
        (published(OTHER), "invalid", "bad_signature"),
        ({**published(), "label": "changed"}, "invalid", "bad_signature"),
        ({**published(), "participant_id": OTHER.identity("participant")}, "invalid",
         "bad_signature"),
        (KEY.sign(template(participant_id=KEY.identity("node"))), "invalid", "bad_signature"),
        (KEY.sign(template()), "invalid", "bad_signature"),
        (template(participant_id=PUBLISHER), "missing", "bad_signature"),
        (published(signature=None) | {"signature": "trust me"}, "invalid", "bad_signature"),
        (published(deadline_seconds=5), "valid", "definition"),
        (published(plan={"steps": [{"step_id": "a", "service_type": "x", "depends_on": ["a"]}]}),
         "valid", "definition"),
        (published(surprise=1), "valid", "definition"),
    ],
)  # fmt: skip
@in_loop
async def test_what_is_forged_or_cannot_work_is_shown_as_such_and_not_kept(
    document: dict[str, Any], verdict: str, code: str
) -> None:
    async with liar(with_template(document)) as nodes:
        seen = await asked(nodes["a"], "POST", "/import/preview", wanted(nodes))
        assert (seen.status, seen.body["signature"]) == (200, verdict)
        assert not seen.body["importable"]
        body = wanted(nodes, digest=seen.body["digest"])
        refused = await asked(nodes["a"], "POST", "/import", body)
        assert refused.body["code"] == code
        assert refused.status in (400, 403)
        assert await ids(nodes["a"]) == []


@in_loop
async def test_a_template_of_another_publisher_than_the_named_one_is_not_kept() -> None:
    async with liar(with_template(published())) as nodes:
        seen = (await asked(nodes["a"], "POST", "/import/preview", wanted(nodes))).body
        assert (seen["publisher"], seen["signature"]) == (PUBLISHER, "valid")
        assert seen["publisher_runs_node"] is False
        named = wanted(nodes, digest=seen["digest"], publisher=nodes["b"].participant_id)
        refused = await asked(nodes["a"], "POST", "/import", named)
        assert (refused.status, refused.body["code"]) == (403, "other_publisher")
        named["publisher"] = PUBLISHER
        assert (await asked(nodes["a"], "POST", "/import", named)).status == 201


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


ANSWERS: dict[str, Said] = {
    "nothing": lambda _request: {},
    "a list": lambda _request: [1],
    "text": lambda _request: "weekly",
    "an answer to another question": lambda _request: {
        "schema_version": "v1", "query_id": "query:other", "template": published(),
    },
    "another template": with_template(published(template_id="other.v1")),
    "a template that is text": with_template("weekly.v1"),
    "a list where one is asked for": lambda request: {
        "schema_version": "v1", "query_id": request["query_id"], "templates": [],
    },
    "a template and an error": lambda request: {
        "schema_version": "v1", "query_id": request["query_id"], "template": published(),
        "error": {"code": "x", "message": "y"},
    },
    "more than a template may have": with_template(published(description="x" * 70_000)),
    "a template as deep as it gets": with_template(template(input=deep(100))),
    "numbers beyond all": with_template(template(input={"n": 10**30})),
    "fractions": with_template(template(input={"n": 0.5})),
    "an error of its own": lambda request: {
        "schema_version": "v1", "query_id": request["query_id"],
        "error": {"code": "busy", "message": "come again"},
    },
}  # fmt: skip


@pytest.mark.parametrize("what", ANSWERS)
@in_loop
async def test_an_answer_that_is_none_is_an_error_and_changes_nothing(what: str) -> None:
    async with liar(ANSWERS[what]) as nodes:
        seen = await asked(nodes["a"], "POST", "/import/preview", wanted(nodes))
        assert seen.status == 502, seen.body
        assert seen.body["code"] in ("bad_answer", "peer_refused")
        refused = await asked(nodes["a"], "POST", "/import", wanted(nodes, digest="sha256:x"))
        assert refused.status == 502
        assert await ids(nodes["a"]) == []


@in_loop
async def test_a_list_longer_than_asked_for_is_not_taken() -> None:
    row = {"publisher": PUBLISHER, "digest": f"sha256:{'A' * 43}", "size_bytes": 9}

    def many(request: dict[str, Any]) -> Any:
        rows = [{"template_id": f"t{number}", **row} for number in range(request["limit"] + 1)]
        return {"schema_version": "v1", "query_id": request["query_id"], "templates": rows}

    async with liar(many) as nodes:
        body = {"node_id": nodes["b"].node_id, "limit": 3}
        seen = await asked(nodes["a"], "POST", "/browse", body)
        assert (seen.status, seen.body["code"]) == (502, "bad_answer")


@in_loop
async def test_a_module_of_this_node_cannot_answer_for_another_node() -> None:
    def beside(_call: Any) -> Liar:
        return Liar(with_template(published()), chain="pre-send")

    templates = world("a")
    spec = templates["a"].spec
    modules = {**spec.modules, "other": beside}
    async with World(nodes=[{"name": "a", "modules": modules}, {"name": "b"}]) as nodes:
        seen = await asked(nodes["a"], "POST", "/import/preview", wanted(nodes))
        assert (seen.status, seen.body["code"]) == (502, "peer_refused")
    await templates.close()


@in_loop
async def test_nodes_without_templates_unreachable_nodes_and_odd_ids_have_their_class() -> None:
    async with world("a", b=lambda _call: Liar(lambda _request: None, chain="audit")) as nodes:
        silent = await asked(nodes["a"], "POST", "/import/preview", wanted(nodes))
        assert (silent.status, silent.body["code"]) == (502, "no_template_catalog")
        nodes["b"].stop()
        gone = await asked(nodes["a"], "POST", "/import/preview", wanted(nodes))
        assert (gone.status, gone.body["code"]) == (504, "peer_unreachable")
        odd = await asked(nodes["a"], "POST", "/import/preview", wanted(nodes, "../x"))
        assert (odd.status, odd.body["code"]) == (404, "template_not_found")
        for body in ({}, {"node_id": "b"}, wanted(nodes, extra=1), {"node_id": "", "limit": 0}):
            refused = await asked(nodes["a"], "POST", "/browse", {**body, "x": 1})
            assert refused.status == 400


# -- peers that ask ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "payload",
    [
        None,
        [],
        "x",
        {},
        {"schema_version": "v2", "query_id": "q"},
        {"schema_version": "v1", "query_id": 5},
        {"schema_version": "v1", "query_id": "q", "template_id": ["weekly.v1"]},
        {"schema_version": "v1", "query_id": "q", "limit": 0},
        {"schema_version": "v1", "query_id": "q" * 5000},
        {"schema_version": "v1", "query_id": "q", "after": deep(50)},
    ],
)
@in_loop
async def test_a_request_that_does_not_fit_is_answered_with_an_error(payload: Any) -> None:
    async with world("a", "b") as nodes:
        await publish(nodes["b"])
        body = {
            "destination": {"node_id": nodes["b"].node_id},
            "msg": "workflow-template.fetch.request",
            "payload": payload,
            "correlation_id": "query:1",
            "execution_mode": "blocking",
        }
        path = "/v1/host/capabilities/peer.message.dispatch"
        answer = await nodes["a"].request("POST", path, body, as_="arca")
        (outcome,) = answer.body["targets"]
        assert outcome["payload"]["error"]["code"] == "schema"
        assert "template" not in outcome["payload"]
