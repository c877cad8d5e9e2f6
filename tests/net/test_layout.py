"""The layout: nothing overlaps, arrows lead down, cycles do not disturb it."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.net.cycles import rings
from anabranch.net.fingerprint import fingerprint
from anabranch.net.layout import Edge, Layout, Size, layout

graphs = st.integers(1, 14).flatmap(
    lambda count: st.lists(
        st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=30
    ).map(lambda pairs: (count, pairs))
)


def laid_out(count: int, pairs: list[tuple[int, int]]) -> Layout:
    sizes = {f"n{n}": Size(80 + 10 * (n % 3), 40) for n in range(count)}
    edges = [Edge(f"n{a}", f"n{b}", Size(50, 14) if a % 2 else None) for a, b in pairs]
    return layout(sizes, edges, roots=["n0"], groups={f"n{n}": n % 2 for n in range(0, count, 3)})


@settings(max_examples=80, deadline=None)
@given(graphs)
def test_boxes_and_labels_never_overlap(graph: tuple[int, list[tuple[int, int]]]) -> None:
    found = laid_out(*graph)
    places = {id(box): box for box in found.boxes.values()}
    for route in found.routes:
        if route is not None and route.label is not None:
            places[id(route.label)] = route.label
    for one, other in combinations(places.values(), 2):
        apart_x = abs(one.x - other.x) >= (one.width + other.width) / 2 - 0.01
        apart_y = abs(one.y - other.y) >= (one.height + other.height) / 2 - 0.01
        assert apart_x or apart_y
    for box in places.values():
        assert box.x - box.width / 2 >= -0.01
        assert box.x + box.width / 2 <= found.width + 0.01
        assert 0 <= box.y <= found.height


@settings(max_examples=80, deadline=None)
@given(graphs)
def test_routes_join_their_ends_in_one_direction(
    graph: tuple[int, list[tuple[int, int]]],
) -> None:
    count, pairs = graph
    found = laid_out(count, pairs)
    for (source, target), route in zip(pairs, found.routes, strict=True):
        if source == target:
            assert route is None
            continue
        assert route is not None
        assert route.points[0] is found.boxes[f"n{source}"]
        assert route.points[-1] is found.boxes[f"n{target}"]
        ys = [point.y for point in route.points]
        assert ys == sorted(ys, reverse=route.upwards)


def test_arrows_without_cycles_lead_down_from_the_root() -> None:
    found = laid_out(5, [(0, 1), (1, 2), (0, 3), (3, 2), (2, 4)])
    assert not any(route.upwards for route in found.routes if route is not None)
    assert found.boxes["n0"].y == min(box.y for box in found.boxes.values())
    assert found.boxes["n4"].y == max(box.y for box in found.boxes.values())


def test_a_single_chain_is_straight() -> None:
    sizes = {name: Size(80, 40) for name in "abcd"}
    found = layout(sizes, [Edge("a", "b"), Edge("b", "c"), Edge("c", "d")], roots=["a"])
    assert len({round(box.x, 3) for box in found.boxes.values()}) == 1


def test_the_last_boxes_stand_below_all_others() -> None:
    sizes = {name: Size(80, 40) for name in "abz"}
    found = layout(sizes, [Edge("a", "b")], roots=["a"], last=["z"])
    assert found.boxes["z"].y > found.boxes["b"].y


def test_nothing_to_lay_out() -> None:
    assert layout({}, []).boxes == {}


# -- cycles ----------------------------------------------------------------------------------


def test_rings() -> None:
    assert rings({"a": ["b"], "b": []}) == []
    assert rings({"a": ["a"]}) == [{"a"}]
    edges = {"a": ["b"], "b": ["c"], "c": ["b", "d"], "d": ["e"], "e": ["d"], "f": ["a"]}
    assert sorted(map(sorted, rings(edges))) == [["b", "c"], ["d", "e"]]


@settings(max_examples=100, deadline=None)
@given(graphs)
def test_rings_are_what_reaches_itself(graph: tuple[int, list[tuple[int, int]]]) -> None:
    count, pairs = graph
    edges = {f"n{n}": [f"n{b}" for a, b in pairs if a == n] for n in range(count)}
    inside = set().union(*rings(edges))
    for name in edges:
        seen: set[str] = set()
        frontier = list(edges[name])
        while frontier:
            here = frontier.pop()
            if here not in seen:
                seen.add(here)
                frontier += edges[here]
        assert (name in seen) == (name in inside)


# -- fingerprint -----------------------------------------------------------------------------


def test_fingerprints_tell_sources_and_dialects_apart() -> None:
    assert fingerprint("noetl", "a: 1") == fingerprint("noetl", "a: 1")
    assert fingerprint("noetl", "a: 1") != fingerprint("noetl", "a: 2")
    assert fingerprint("noetl", "a: 1") != fingerprint("arca", "a: 1")
    assert fingerprint("a", "b") != fingerprint("ab", "")


def test_line_ends_and_byte_order_marks_do_not_count() -> None:
    assert fingerprint("noetl", "\ufeffa\r\nb\r") == fingerprint("noetl", "a\nb\n")


def test_fingerprints_never_change() -> None:
    # Runs in a store find their definition by it.
    assert fingerprint("noetl", "workflow: []\n").startswith("64539d76e7b5b33e215ec23f")
