"""A layered layout: ranks from top to bottom, few crossings, straight where possible.

Boxes stand on even ranks. Every arrow passes the odd rank below its source, where its label has a
place of its own, so that labels never cover each other. Arrows over several ranks bend around what
lies between through points of no width. Arrows that lead back up are turned round for the layout.
Each stage is linear in the number of points, apart from the sorting of a rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import msgspec

from anabranch.cancel import poll
from anabranch.net.cycles import finishing_order

SPACE = 28.0  # between neighbours on a rank
GROUP_SPACE = 26.0  # more where a group ends, for its frame
RANK_SPACE = 22.0
SWEEPS = 6
#: Beyond this many points long arrows are drawn straight through: the picture is dense anyway.
POINTS_MAX = 20_000


class Size(msgspec.Struct, frozen=True):
    width: float
    height: float


class Point(msgspec.Struct):
    """A box, or a place an arrow passes."""

    id: str
    rank: int
    width: float
    height: float
    group: int = -1
    x: float = 0.0  # centre
    y: float = 0.0
    above: list[Point] = []
    below: list[Point] = []


class Edge(msgspec.Struct, frozen=True):
    """An arrow to lay out; `label` is the size its label needs."""

    source: str
    target: str
    label: Size | None = None


class ArrowRoute(msgspec.Struct, frozen=True):
    """The points of an arrow from its source to its target, both included."""

    points: tuple[Point, ...]
    label: Point | None
    upwards: bool


class Layout(msgspec.Struct, frozen=True):
    boxes: Mapping[str, Point]
    routes: Sequence[ArrowRoute | None]  # None for an arrow from a box to itself
    width: float
    height: float


def layout(
    sizes: Mapping[str, Size],
    edges: Sequence[Edge],
    *,
    roots: Iterable[str] = (),
    groups: Mapping[str, int] | None = None,
    last: Iterable[str] = (),
) -> Layout:
    """`roots` come first, `last` at the bottom; boxes of one group stay side by side."""
    groups = groups or {}
    last = [name for name in last if name in sizes]
    ranks = _ranks(sizes, edges, list(roots), set(last))
    boxes = {
        name: Point(name, 2 * ranks[name], size.width, size.height, groups.get(name, -1))
        for name, size in sizes.items()
    }
    routes = _routes(boxes, edges)
    rows = _rows(boxes.values(), routes)
    _order(rows)
    width = _place_across(rows)
    if len(last) == 1:
        boxes[last[0]].x = width / 2
    height = _place_down(rows)
    return Layout(boxes, routes, width, height)


# -- ranks -----------------------------------------------------------------------------------


def _ranks(
    sizes: Mapping[str, Size], edges: Sequence[Edge], roots: list[str], last: set[str]
) -> dict[str, int]:
    """The longest way from the roots, arrows back not counted."""
    following: dict[str, list[str]] = {name: [] for name in sizes}
    for edge in edges:
        following[edge.source].append(edge.target)
    order = _topological(following, [*roots, *sizes])
    place = {name: index for index, name in enumerate(order)}
    ranks = dict.fromkeys(sizes, 0)
    for name in order:
        for target in following[name]:
            if place[target] > place[name]:
                ranks[target] = max(ranks[target], ranks[name] + 1)
    lowest = max((rank for name, rank in ranks.items() if name not in last), default=-1)
    return ranks | dict.fromkeys(last, lowest + 1)


def _topological(following: Mapping[str, Sequence[str]], roots: Iterable[str]) -> list[str]:
    """An order in which only arrows that close a cycle lead back."""
    return finishing_order(following, roots)[::-1]


# -- routes ----------------------------------------------------------------------------------


def _routes(boxes: Mapping[str, Point], edges: Sequence[Edge]) -> list[ArrowRoute | None]:
    routes: list[ArrowRoute | None] = []
    budget = POINTS_MAX
    for edge in edges:
        source, target = boxes[edge.source], boxes[edge.target]
        if source is target:
            routes.append(None)
            continue
        upwards = source.rank >= target.rank
        top, bottom = (target, source) if upwards else (source, target)
        between = max(bottom.rank - top.rank - 1, 0)
        budget -= between
        routes.append(_route(edge, top, bottom, upwards, straight=budget < 0))
    return routes


def _route(edge: Edge, top: Point, bottom: Point, upwards: bool, *, straight: bool) -> ArrowRoute:
    ranks = range(top.rank + 1, bottom.rank)
    if straight:
        ranks = ranks[:1]
    # A way out of a group stays beside it as far as it goes, rather than winding round its frame.
    group = top.group if top.group == bottom.group or not upwards else -1
    points = [Point("", rank, 4.0, 0.0, group) for rank in ranks]
    label = None
    if edge.label is not None and points:
        label = points[-1] if upwards else points[0]
        label.width, label.height = edge.label.width, edge.label.height
    chain = [top, *points, bottom]
    for upper, lower in pairwise(chain):
        upper.below.append(lower)
        lower.above.append(upper)
    return ArrowRoute(tuple(reversed(chain)) if upwards else tuple(chain), label, upwards)


# -- order within a rank ---------------------------------------------------------------------


def _rows(boxes: Iterable[Point], routes: Iterable[ArrowRoute | None]) -> list[list[Point]]:
    points = {id(box): box for box in boxes}
    for route in routes:
        for point in route.points if route is not None else ():
            points[id(point)] = point
    rows: list[list[Point]] = [
        [] for _ in range(max((p.rank for p in points.values()), default=-1) + 1)
    ]
    for point in points.values():
        rows[point.rank].append(point)
    return rows


def _order(rows: list[list[Point]]) -> None:
    """Sort each rank by where the neighbours stand, down and up in turn."""
    place: dict[int, float] = {}
    for row in rows:
        place |= {id(point): float(index) for index, point in enumerate(row)}
    for sweep in range(SWEEPS):
        poll()
        downwards = sweep % 2 == 0
        for row in rows if downwards else reversed(rows):
            wanted = {
                id(point): _mean(point.above if downwards else point.below, place, place[id(point)])
                for point in row
            }
            _sort_with_groups(row, wanted)
            place |= {id(point): float(index) for index, point in enumerate(row)}


def _mean(points: Sequence[Point], place: Mapping[int, float], default: float) -> float:
    return sum(place[id(point)] for point in points) / len(points) if points else default


def _sort_with_groups(row: list[Point], wanted: Mapping[int, float]) -> None:
    totals: dict[int, tuple[float, int]] = {}
    for point in row:
        total, count = totals.get(point.group, (0.0, 0))
        totals[point.group] = total + wanted[id(point)], count + 1
    centre = {group: total / count for group, (total, count) in totals.items()}

    def key(point: Point) -> tuple[float, int, float]:
        own = wanted[id(point)]
        return (own if point.group == -1 else centre[point.group], point.group, own)

    row.sort(key=key)


# -- coordinates -----------------------------------------------------------------------------


def _place_across(rows: list[list[Point]]) -> float:
    """Each rank as near to its neighbours as the widths allow, down and up in turn."""
    for row in rows:
        x = 0.0
        for index, point in enumerate(row):
            x += _distance(row[index - 1], point) if index else 0.0
            point.x = x
    for sweep in range(SWEEPS + 2):
        poll()
        downwards = sweep % 2 == 0
        for row in rows if downwards else reversed(rows):
            _settle(row, downwards=downwards)
    everything = [point for row in rows for point in row]
    left = min((point.x - point.width / 2 for point in everything), default=0.0)
    for point in everything:
        point.x -= left
    return max((point.x + point.width / 2 for point in everything), default=0.0)


def _settle(row: list[Point], *, downwards: bool) -> None:
    """Least squares under the order: neighbours that would overlap move as one block."""
    blocks: list[tuple[float, float, list[Point]]] = []  # sum of wishes, weight, members
    offsets: dict[int, float] = {}
    reach = 0.0
    for index, point in enumerate(row):
        if index:
            reach += _distance(row[index - 1], point)
        offsets[id(point)] = reach
        near = point.above if downwards else point.below
        wish = sum(other.x for other in near) / len(near) if near else point.x
        # A bend in a long arrow weighs more than a box, which keeps long arrows straight.
        weight = 8.0 if not point.id and near else 1.0 if near else 0.1
        blocks.append(((wish - reach) * weight, weight, [point]))
        while len(blocks) > 1 and _mean_of(blocks[-2]) > _mean_of(blocks[-1]):
            total, weight, members = blocks.pop()
            total_before, weight_before, together = blocks.pop()
            together.extend(members)
            blocks.append((total_before + total, weight_before + weight, together))
    for block in blocks:
        for point in block[2]:
            point.x = _mean_of(block) + offsets[id(point)]


def _distance(left: Point, right: Point) -> float:
    """Between the centres of two neighbours, at least."""
    apart = 0.0 if left.group == right.group else GROUP_SPACE
    return (left.width + right.width) / 2 + SPACE + apart


def _mean_of(block: tuple[float, float, list[Point]]) -> float:
    return block[0] / block[1]


def _place_down(rows: list[list[Point]]) -> float:
    y = 0.0
    for rank, row in enumerate(rows):
        height = max((point.height for point in row), default=0.0)
        for point in row:
            point.y = y + height / 2
            if not point.id and not point.height:
                point.height = height  # an arrow passes its rank straight, clear of the boxes
        y += height + (RANK_SPACE if rank + 1 < len(rows) else 0.0)
    return y
