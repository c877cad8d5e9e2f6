"""A net as a drawing: Mermaid and DOT for other tools, SVG on its own.

With `statuses` (step → last status) and `counts` (step → runs so far) the drawing is that of a run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from anabranch.net.draw_svg import svg
from anabranch.net.net import Net
from anabranch.net.picture import Arrow, Box, Look, Picture, picture

__all__ = ["dot", "mermaid", "svg"]

#: Fill, border and text of each look, readable on light and on dark paper.
COLOURS: Mapping[Look, tuple[str, str, str]] = {
    "plain": ("#eef1f5", "#6b7787", "#17202b"),
    "active": ("#dbe9ff", "#2f6fde", "#12305f"),
    "waiting": ("#fff1cf", "#b7791f", "#573b08"),
    "done": ("#dcf5e3", "#2f9e56", "#0f4424"),
    "failed": ("#fde2e1", "#d13c36", "#641b18"),
    "quiet": ("#f1f2f4", "#a3abb6", "#5d6672"),
}


# -- Mermaid ---------------------------------------------------------------------------------


def mermaid(
    net: Net, *, statuses: Mapping[str, str] | None = None, counts: Mapping[str, int] | None = None
) -> str:
    shown = picture(net, statuses, counts)
    lines = ["flowchart TD"]
    lines += _mermaid_boxes(shown, None, "  ")
    lines += [f"  {_mermaid_arrow(arrow)}" for arrow in shown.arrows]
    for look, (fill, stroke, ink) in COLOURS.items():
        members = ",".join(box.id for box in shown.boxes if box.look == look)
        if members:
            lines.append(f"  classDef {look} fill:{fill},stroke:{stroke},color:{ink}")
            lines.append(f"  class {members} {look}")
    return "\n".join(lines) + "\n"


def _mermaid_boxes(shown: Picture, frame: int | None, indent: str) -> Iterator[str]:
    for box in shown.boxes:
        if box.frame == frame:
            yield indent + _mermaid_box(box)
    for index, inner in enumerate(shown.frames):
        if inner.parent == frame:
            yield f'{indent}subgraph s{index}["{_mermaid_text(inner.title)}"]'
            yield from _mermaid_boxes(shown, index, indent + "  ")
            yield f"{indent}end"


def _mermaid_box(box: Box) -> str:
    words = [_mermaid_text(word) for word in _lines_of(box)]
    text = "<br/>".join(words)
    if box.kind == "join":
        return f'{box.id}{{{{"{text}"}}}}'
    if box.final:
        return f'{box.id}[["{text}"]]'
    return f'{box.id}(["{text}"])' if box.entry else f'{box.id}["{text}"]'


def _mermaid_arrow(arrow: Arrow) -> str:
    line = "-.->" if arrow.dashed else "-->"
    label = f'|"{_mermaid_text(arrow.label)}"|' if arrow.label else ""
    return f"{arrow.source} {line}{label} {arrow.target}"


def _mermaid_text(text: str) -> str:
    """Everything that Mermaid or HTML could take for markup becomes its number."""
    return "".join(c if c.isalnum() or c in " _.,·≤×…→-" else f"#{ord(c)};" for c in text)


# -- DOT -------------------------------------------------------------------------------------


def dot(
    net: Net, *, statuses: Mapping[str, str] | None = None, counts: Mapping[str, int] | None = None
) -> str:
    shown = picture(net, statuses, counts)
    lines = [
        f"digraph {_dot_text(shown.title)} {{",
        '  node [shape=box, style="rounded,filled", fontname="sans-serif", fontsize=11];',
        '  edge [fontname="sans-serif", fontsize=9, color="#6b7787"];',
    ]
    lines += _dot_boxes(shown, None, "  ")
    lines += [f"  {_dot_arrow(arrow)}" for arrow in shown.arrows]
    return "\n".join([*lines, "}"]) + "\n"


def _dot_boxes(shown: Picture, frame: int | None, indent: str) -> Iterator[str]:
    for box in shown.boxes:
        if box.frame == frame:
            yield indent + _dot_box(box)
    for index, inner in enumerate(shown.frames):
        if inner.parent == frame:
            yield f"{indent}subgraph cluster_{index} {{"
            yield f'{indent}  label={_dot_text(inner.title)}; style="rounded,dashed";'
            yield from _dot_boxes(shown, index, indent + "  ")
            yield f"{indent}}}"


def _dot_box(box: Box) -> str:
    fill, stroke, ink = COLOURS[box.look]
    marks = ", shape=hexagon" if box.kind == "join" else ", peripheries=2" if box.final else ""
    marks += ", penwidth=2" if box.entry else ""
    text = _dot_text("\n".join(_lines_of(box)))
    colours = f'fillcolor="{fill}", color="{stroke}", fontcolor="{ink}"'
    return f"{box.id} [label={text}, {colours}{marks}, tooltip={_dot_text(box.hint)}];"


def _dot_arrow(arrow: Arrow) -> str:
    style = ", style=dashed" if arrow.dashed else ""
    return f"{arrow.source} -> {arrow.target} [label={_dot_text(arrow.label)}{style}];"


def _dot_text(text: str) -> str:
    # `\G`, `\N` and the like are replaced by DOT itself, hence every backslash is doubled.
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _lines_of(box: Box) -> list[str]:
    count = f" ×{box.count}" if box.count > 1 else ""
    marks = ["final"] if box.final else ["start"] if box.entry else []
    detail = " · ".join([*marks, *([box.detail] if box.detail else [])])
    return [box.title + count, *([detail] if detail else [])]
