"""The SVG of a net: no dependencies, light and dark, readable without a script.

Every text is escaped. Boxes carry `data-step` so that a page can find them; the classes all begin
with `anb-`, because a style inside an SVG counts for the whole page it stands in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from html import escape
from itertools import pairwise

from anabranch.net.layout import ArrowRoute, Edge, Layout, Point, Size, layout
from anabranch.net.net import Net
from anabranch.net.picture import Arrow, Box, Look, Picture, picture

MARGIN = 28.0
HEAD = 22.0  # above the entry, for its mark
BOX_HEIGHT = 46.0
JOIN_HEIGHT = 26.0
LABEL_HEIGHT = 16.0
PORT_SPACE = 14.0
FRAME_PAD = 16.0
LOOP_WIDTH = 30.0
STATUS_LETTERS = 12  # the longest status and the dot after it

#: Fill, border, text: on light paper, then on dark.
PALETTE: Mapping[Look, tuple[tuple[str, str, str], tuple[str, str, str]]] = {
    "plain": (("#ffffff", "#8a94a3", "#17202b"), ("#1b232e", "#6c7889", "#e6ebf2")),
    "active": (("#e4efff", "#2f6fde", "#12305f"), ("#12294d", "#5b97ff", "#dbe8ff")),
    "waiting": (("#fff4d9", "#b7791f", "#573b08"), ("#3a2b0c", "#e0a83f", "#ffeec9")),
    "done": (("#e3f7e9", "#2f9e56", "#0f4424"), ("#11301d", "#4cc27a", "#d5f5e0")),
    "failed": (("#fde8e7", "#d13c36", "#641b18"), ("#3c1614", "#f0716b", "#ffdedc")),
    "quiet": (("#f4f5f7", "#b4bbc5", "#6a7380"), ("#161c24", "#4a5463", "#98a2b0")),
}
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def svg(
    net: Net,
    *,
    statuses: Mapping[str, str] | None = None,
    counts: Mapping[str, int] | None = None,
    live: bool = False,
) -> str:
    """`live` leaves the colours to the page, and room in each box for a status that changes."""
    shown = picture(net, statuses, counts)
    laid_out = _laid_out(shown, live)
    margin = MARGIN + (FRAME_PAD if shown.frames else 0)
    _Shift(laid_out).by(margin, margin + HEAD)
    width = laid_out.width + 2 * margin
    height = laid_out.height + 2 * margin + HEAD
    title = _text(shown.title)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="anb-graph" role="img" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}">',
        f"<title>{title}</title>",
        *(() if live else (f"<style>{_style()}</style>",)),
        _MARKERS,
        f'<rect class="anb-paper" width="{width:.0f}" height="{height:.0f}" rx="10"/>',
        *_frames(shown, laid_out),
        *_arrows(shown, laid_out),
        *_frame_titles(shown, laid_out),
        *(_box(box, laid_out.boxes[box.id]) for box in shown.boxes),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


# -- sizes -----------------------------------------------------------------------------------


def _laid_out(shown: Picture, live: bool = False) -> Layout:
    sizes = {box.id: _size(box, live) for box in shown.boxes}
    targets = {arrow.target for arrow in shown.arrows}
    laid_out = layout(
        _with_loops(sizes, shown.arrows),
        [Edge(arrow.source, arrow.target, _label_size(arrow)) for arrow in shown.arrows],
        roots=[box.id for box in shown.boxes if box.entry],
        groups={box.id: box.frame for box in shown.boxes if box.frame is not None},
        last=[box.id for box in shown.boxes if box.final and box.id not in targets],
    )
    for name, size in sizes.items():
        laid_out.boxes[name].width = size.width
    return laid_out


def _with_loops(sizes: Mapping[str, Size], arrows: Iterable[Arrow]) -> dict[str, Size]:
    """Room beside the boxes that lead to themselves."""
    room = dict(sizes)
    for arrow in arrows:
        if arrow.source == arrow.target:
            label = _label_size(arrow)
            wide = LOOP_WIDTH + (label.width if label else 0)
            room[arrow.source] = Size(
                max(room[arrow.source].width, sizes[arrow.source].width + 2 * wide), BOX_HEIGHT
            )
    return room


def _size(box: Box, live: bool = False) -> Size:
    if box.kind == "join":
        return Size(7.5 * (len(box.title) + 4 * live) + 30, JOIN_HEIGHT)
    count = 34 if box.count > 1 or live else 0
    widest = max(8.0 * len(box.title) + count, 6.3 * (len(box.detail) + STATUS_LETTERS * live))
    return Size(min(max(widest + 36, 120), 300), BOX_HEIGHT)


def _label_size(arrow: Arrow) -> Size | None:
    return Size(6.2 * len(arrow.label) + 10, LABEL_HEIGHT) if arrow.label else None


class _Shift:
    """Moves everything once; a point may lie on several routes."""

    def __init__(self, laid_out: Layout) -> None:
        points = {id(point): point for point in laid_out.boxes.values()}
        for route in laid_out.routes:
            points |= {id(point): point for point in (route.points if route else ())}
        self._points: Iterable[Point] = points.values()

    def by(self, x: float, y: float) -> None:
        for point in self._points:
            point.x += x
            point.y += y


# -- boxes -----------------------------------------------------------------------------------


def _box(box: Box, point: Point) -> str:
    left, top = point.x - point.width / 2, point.y - point.height / 2
    size = f'width="{point.width:.1f}" height="{point.height:.1f}"'
    classes = f"anb-box anb-{box.look}" + (" anb-join" if box.kind == "join" else "")
    radius = point.height / 2 if box.kind == "join" else 9
    parts = [
        f'<g class="{classes}" data-step="{_text(_name(box))}" '
        f'data-status="{_text(box.status)}"><title>{_text(box.hint)}</title>',
        f'<rect x="{left:.1f}" y="{top:.1f}" {size} rx="{radius:.0f}"/>',
    ]
    if box.final:
        parts.append(
            f'<rect class="anb-inner" x="{left + 3.5:.1f}" y="{top + 3.5:.1f}" '
            f'width="{point.width - 7:.1f}" height="{point.height - 7:.1f}" rx="6"/>'
        )
        parts.append(_line("anb-note", point.x, top - 6, "at the end"))
    if box.entry:
        parts.append(_entry(point, top))
    parts.append(_words(box, point))
    if box.count > 1:
        parts.append(_count(box, left + point.width, top))
    return "".join([*parts, "</g>"])


def _name(box: Box) -> str:
    """What a page finds it by: the step; of a join its rule and its target."""
    return box.hint.partition("\n")[0]


def _words(box: Box, point: Point) -> str:
    if not box.detail:
        return _line("anb-name", point.x, point.y + 4.5, box.title)
    name = _line("anb-name", point.x, point.y - 3, box.title)
    return name + _line("anb-detail", point.x, point.y + 13, box.detail)


def _line(kind: str, x: float, y: float, text: str, inside: str = "") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{inside}{_text(text)}</text>'


def _entry(point: Point, top: float) -> str:
    start = top - HEAD - 4
    return (
        f'<circle class="anb-start" cx="{point.x:.1f}" cy="{start:.1f}" r="4.5"/>'
        f'<path class="anb-line" d="M{point.x:.1f} {start:.1f}V{top - 1:.1f}" '
        f'marker-end="url(#anb-tip)"/>'
    )


def _count(box: Box, right: float, top: float) -> str:
    text = f"×{box.count:,}"
    width = 7.0 * len(text) + 10
    return (
        f'<rect class="anb-badge" x="{right - width + 8:.1f}" y="{top - 9:.1f}" '
        f'width="{width:.1f}" height="18" rx="9"/>'
        + _line("anb-badge-text", right - width / 2 + 8, top + 4, text)
    )


# -- frames ----------------------------------------------------------------------------------


def _frames(shown: Picture, laid_out: Layout) -> Iterable[str]:
    """Outer frames first, so that inner ones lie on top."""
    for _, (left, top, right, bottom) in _bounds(shown, laid_out):
        yield (
            f'<g class="anb-frame"><rect x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" '
            f'height="{bottom - top:.1f}" rx="12"/></g>'
        )


def _frame_titles(shown: Picture, laid_out: Layout) -> Iterable[str]:
    """After the arrows, so that none crosses a title."""
    for title, (left, _, _, bottom) in _bounds(shown, laid_out):
        x = left + 6 + _paper_width(title) / 2
        yield f'<g class="anb-title">{_on_paper(title, x, bottom - 8.5)}</g>'


def _bounds(
    shown: Picture, laid_out: Layout
) -> Iterable[tuple[str, tuple[float, float, float, float]]]:
    """The title of each frame with its left, top, right and bottom."""
    for frame in sorted(shown.frames, key=lambda each: -len(each.members)):
        points = [laid_out.boxes[name] for name in frame.members]
        if not points:
            continue
        nested = sum(other.members < frame.members for other in shown.frames)
        pad = FRAME_PAD * (1 + min(nested, 3) * 0.5)
        left = min(point.x - point.width / 2 for point in points) - pad
        right = max(point.x + point.width / 2 for point in points) + pad
        top = min(point.y - point.height / 2 for point in points) - pad
        bottom = max(point.y + point.height / 2 for point in points) + pad + 4
        yield frame.title, (left, top, right, bottom)


# -- arrows ----------------------------------------------------------------------------------


def _arrows(shown: Picture, laid_out: Layout) -> Iterable[str]:
    leaving, arriving = _ports(laid_out)
    labels: list[str] = []
    named = {box.id: _text(_name(box)) for box in shown.boxes}
    for index, (arrow, route) in enumerate(zip(shown.arrows, laid_out.routes, strict=True)):
        classes = "anb-arrow anb-dashed" if arrow.dashed else "anb-arrow"
        hint = f"<title>{_text(arrow.hint)}</title>" if arrow.hint else ""
        if route is None:
            path, label = _self_loop(laid_out.boxes[arrow.source], arrow.label)
        else:
            path = _path(route, leaving[index], arriving[index])
            label = (route.label.x, route.label.y) if route.label else _middle(route)
        when = f' data-when="{_text(arrow.when)}"' if arrow.when else ""
        yield (
            f'<g class="{classes}" data-from="{named[arrow.source]}" '
            f'data-to="{named[arrow.target]}"{when}>{hint}<path class="anb-line" d="{path}" '
            f'marker-end="url(#anb-tip)"/></g>'
        )
        if arrow.label:
            labels.append(_on_paper(arrow.label, *label, hint))
    yield from labels  # last, so that no line crosses a label


def _paper_width(text: str) -> float:
    return 6.0 * len(text) + 8


def _on_paper(text: str, x: float, y: float, hint: str = "") -> str:
    """A text around this point that covers the lines below it."""
    width = _paper_width(text)
    paper = f'x="{x - width / 2:.1f}" y="{y - LABEL_HEIGHT / 2:.1f}" width="{width:.1f}"'
    return f'<rect class="anb-under" {paper} height="{LABEL_HEIGHT:.0f}" rx="4"/>' + _line(
        "anb-label", x, y + 3.5, text, hint
    )


def _ports(laid_out: Layout) -> tuple[dict[int, float], dict[int, float]]:
    """Where each arrow leaves its source and meets its target, so that none share a place."""
    leaving: dict[int, float] = {}
    arriving: dict[int, float] = {}
    sides: dict[tuple[int, bool], list[tuple[float, int, bool]]] = {}
    for index, route in enumerate(laid_out.routes):
        if route is None:
            continue
        first, last = route.points[0], route.points[-1]
        # An arrow upwards leaves at the top of its source and arrives at the bottom of its target.
        key = id(first), not route.upwards
        sides.setdefault(key, []).append((route.points[1].x, index, True))
        key = id(last), route.upwards
        sides.setdefault(key, []).append((route.points[-2].x, index, False))
    width_of = {id(point): (point.x, point.width) for point in laid_out.boxes.values()}
    for (box, _), ends in sides.items():
        x, width = width_of[box]
        space = min(PORT_SPACE, (width - 24) / max(len(ends), 1))
        for place, (_, index, leaves) in enumerate(sorted(ends)):
            port = x + (place - (len(ends) - 1) / 2) * space
            (leaving if leaves else arriving)[index] = port
    return leaving, arriving


def _path(route: ArrowRoute, leaving: float, arriving: float) -> str:
    """A smooth line through the points, vertical at each of them."""
    first, last = route.points[0], route.points[-1]
    sign = -1 if route.upwards else 1
    points = [(leaving, first.y + sign * first.height / 2)]
    for point in route.points[1:-1]:
        points.append((point.x, point.y - sign * point.height / 2))
        points.append((point.x, point.y + sign * point.height / 2))
    points.append((arriving, last.y - sign * (last.height / 2 + 1)))
    path = [f"M{points[0][0]:.1f} {points[0][1]:.1f}"]
    for (x0, y0), (x1, y1) in pairwise(points):
        if abs(x0 - x1) < 0.5:
            path.append(f"L{x1:.1f} {y1:.1f}")
            continue
        half = (y0 + y1) / 2
        path.append(f"C{x0:.1f} {half:.1f} {x1:.1f} {half:.1f} {x1:.1f} {y1:.1f}")
    return "".join(path)


def _self_loop(point: Point, label: str) -> tuple[str, tuple[float, float]]:
    right, y = point.x + point.width / 2, point.y
    path = (
        f"M{right:.1f} {y + 8:.1f}C{right + 26:.1f} {y + 20:.1f} {right + 26:.1f} {y - 20:.1f} "
        f"{right + 1:.1f} {y - 8:.1f}"
    )
    return path, (right + LOOP_WIDTH - 2 + 3.1 * len(label), y)


def _middle(route: ArrowRoute) -> tuple[float, float]:
    first, last = route.points[0], route.points[-1]
    return (first.x + last.x) / 2, (first.y + last.y) / 2


# -- dress -----------------------------------------------------------------------------------

_MARKERS = (
    '<defs><marker id="anb-tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
    'markerHeight="7" orient="auto"><path class="anb-tip" d="M0 0.6L7.4 4L0 7.4z"/></marker></defs>'
)

_SHAPES = (
    ".anb-graph text{font-family:system-ui,-apple-system,'Segoe UI',sans-serif;"
    "text-anchor:middle}"
    ".anb-box rect{stroke-width:1.4}"
    ".anb-box .anb-inner{fill:none;stroke-width:1}"
    ".anb-name{font-size:13px;font-weight:600}"
    ".anb-detail{font-size:10.5px;opacity:.75}"
    ".anb-join .anb-name{font-size:11.5px}"
    ".anb-line{fill:none;stroke-width:1.4}"
    ".anb-dashed .anb-line{stroke-dasharray:4 3}"
    ".anb-label{font-size:10.5px}.anb-under{fill-opacity:.9}.anb-note{font-size:10.5px}"
    ".anb-badge-text{font-size:10.5px;font-weight:600}"
    ".anb-frame rect{fill-opacity:.35;stroke-dasharray:5 4}"
)


def _colours(dark: bool) -> str:
    paper, line, label = (
        ("#10161e", "#8894a6", "#c3ccd8") if dark else ("#fbfcfd", "#6b7787", "#39434f")
    )
    frame = ("#1d2733", "#526072") if dark else ("#eef1f5", "#b3bcc8")
    rules = [
        f".anb-paper{{fill:{paper}}}",
        f".anb-line{{stroke:{line}}}.anb-tip,.anb-start{{fill:{line}}}",
        f".anb-label,.anb-note{{fill:{label}}}.anb-under{{fill:{paper}}}",
        f".anb-frame rect{{fill:{frame[0]};stroke:{frame[1]}}}",
    ]
    for look, colours in PALETTE.items():
        fill, stroke, ink = colours[dark]
        rules.append(
            f".anb-{look} rect{{fill:{fill};stroke:{stroke}}}.anb-{look} text{{fill:{ink}}}"
        )
        rules.append(
            f".anb-{look} .anb-badge{{fill:{stroke}}}.anb-{look} .anb-badge-text{{fill:{fill}}}"
        )
    return "".join(rules)


def _style() -> str:
    dark = _colours(dark=True)
    return f"{_SHAPES}{_colours(dark=False)}@media(prefers-color-scheme:dark){{{dark}}}"


def _text(text: str) -> str:
    return escape(_NOT_XML.sub("\ufffd", text), quote=True)
