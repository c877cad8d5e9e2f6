"""The orchestrations that the standard shows, and small words for making others."""

from __future__ import annotations

from typing import Any

RULE = "0x" + "1" * 40


def join(
    target: str, mode: Any, *producers: str, k: int | None = None, wait: str = "drain"
) -> dict[str, Any]:
    """A join declaration; a producer is `node` or `node:when`."""
    entries = []
    for producer in producers:
        node, _, when = producer.partition(":")
        entries.append({"node": node, "when": when or "valid"})
    declared: dict[str, Any] = {
        "joinid": target,
        "mode": mode,
        "waitonjoin": wait,
        "from": entries,
    }
    return declared if k is None else {**declared, "k": k}


def then(*spawns: str, join: dict[str, Any] | None = None) -> dict[str, Any]:
    branch: dict[str, Any] = {"spawns": list(spawns)} if spawns else {}
    return {**branch, "join": join} if join is not None else branch


def step(
    on_valid: dict[str, Any] | None = None,
    on_invalid: dict[str, Any] | None = None,
    rule: str = RULE,
) -> dict[str, Any]:
    made: dict[str, Any] = {"rule": rule}
    if on_valid is not None:
        made["onValid"] = on_valid
    if on_invalid is not None:
        made["onInvalid"] = on_invalid
    return made


def orchestration(name: str = "test", **steps: dict[str, Any]) -> dict[str, Any]:
    return {"id": name, "structure": steps}


#: Section 4: the shape of a document.
SECTION_4 = orchestration(
    "my_orchestration",
    A1=step(then("G1"), then(), "0x...XRC137_A"),
    G1=step(then(), then("E1"), "0x...XRC137_G"),
    E1=step(then("Z1"), then(), "0x...XRC137_E"),
    J1=step(then("Z1"), then(), "0x...XRC137_J"),
    Z1=step(rule="0x...XRC137_Z"),
)

#: Section 6.1: two of three, kill.
SECTION_6_1 = orchestration(
    "two_of_three",
    A1=step(
        then(
            "G1",
            "H1",
            "I1",
            join=join("J1", "kofn", "G1:valid", "H1:valid", "I1:any", k=2, wait="kill"),
        )
    ),
    G1=step(),
    H1=step(),
    I1=step(),
    J1=step(),
)

#: Section 7.4: two joins in series.
SECTION_7_4 = orchestration(
    "nested_join_example",
    A1=step(then("G1", "H1", join=join("J1", "any", "G1", "H1", wait="kill")), rule="${addr:A}"),
    G1=step(rule="${addr:XRC137_G}"),
    H1=step(rule="${addr:XRC137_H}"),
    J1=step(
        then("P1", "Q1", join=join("J2", "all", "P1", "Q1", wait="kill")), rule="${addr:XRC137_J1}"
    ),
    P1=step(rule="${addr:XRC137_P}"),
    Q1=step(rule="${addr:XRC137_Q}"),
    J2=step(then("Z1"), rule="${addr:XRC137_J2}"),
    Z1=step(rule="${addr:XRC137_Z}"),
)

#: Section 13: the smallest join.
SECTION_13 = orchestration(
    "minimal_join",
    A1=step(then("G1", "H1", join=join("J1", "any", "G1", "H1", wait="kill")), rule="0x...A"),
    G1=step(rule="0x...G"),
    H1=step(rule="0x...H"),
    J1=step(then("Z1"), then(), rule="0x...J"),
    Z1=step(rule="0x...Z"),
)
