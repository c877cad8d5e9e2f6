"""`case` of a step, and `when`/`then` in its `next`: older ways to say what follows, as arcs.

    case:
      - when: "{{ event.name == 'call.error' and error.status == 503 }}"
        then: {retry: {max_attempts: 3}}
      - when: "{{ event.name == 'call.done' and response.more }}"
        then: {set: [{name: rows, value: "{{ response.rows }}"}], next: [{step: again, args: {…}}]}
    next: [{step: finish}]

The first entry that holds is taken. What it sets is set on its arcs; a `retry` becomes that of the
task, and so does a `sink` after every success; `next` beside `case` is followed when no entry
holds. What else an entry may ask for (`collect`, `call` …) cannot be run.
"""

from __future__ import annotations

import re

import msgspec

from anabranch.dialects.nodes import Fields, Items, Node, Scalar
from anabranch.dialects.noetl.respell.shape import Shape, fields, items
from anabranch.dialects.noetl.respell.sinks import after_success, sink_task
from anabranch.dialects.noetl.respell.tasks import RespellReport
from anabranch.dialects.noetl.tasks.retries import PAGES
from anabranch.net.problems import Position

ROUTES = "next: {spec: {mode: …}, arcs: [{step: …, when: …}]}"
#: A `retry` that calls with other inputs is a way to fetch pages.
NEXT_PAGE = (*PAGES, "params", "url", "endpoint", "body", "data", "headers", "path")
PAGES_HINT = "write a rule that jumps back, or loop over `pages`"
#: `{{ workload.action }} == deploy`: text beside text.
_COMPARED = re.compile(r"\s*+\{\{([^{}]++)\}\}\s*+(==|!=)\s*+(?:\{\{([^{}]++)\}\}|([^{}]*+))\s*+")
_WHOLE = re.compile(r"\s*\{\{([^{}]+)\}\}\s*")
_QUOTED = re.compile(r"'([^']*)'|\"([^\"]*)\"")


class _Entry(msgspec.Struct):
    """One entry: the arcs that are followed when it holds."""

    when: Node | None
    at: Position
    arcs: list[Fields] = []
    sets: dict[str, Node] = {}
    args: Fields | None = None
    retry: Fields | None = None
    sink: Node | None = None


class CaseSpelling:
    def __init__(self, seen: RespellReport) -> None:
        self._seen = seen

    def step(self, step: Shape, what: str) -> None:
        """Make `next` of what `case` and the entries of `next` say."""
        case, follows = step.fields.get("case"), step.fields.get("next")
        routed = isinstance(follows, Items) and any(_is_entry(each) for each in follows)
        if not isinstance(case, Items) and not routed:
            return
        entries: list[_Entry] = []
        if isinstance(case, Items):
            _, at = step.take("case")
            self._seen.old(at, f"`case` of {what}", ROUTES)
            self._seen.saw_earlier("case", at)
            entries += self._entries(case, f"`case` of {what}")
        else:
            at = step.keys["next"]
            self._seen.old(at, f"`then` in `next` of {what}", ROUTES)
        if isinstance(follows, Items):
            entries += self._entries(follows, f"`next` of {what}")
        elif follows is not None:
            entries += self._router(follows, what)
        for entry in entries:
            if not entry.arcs and (entry.sets or entry.args is not None):
                self._not_yet(entry.at, "a `set` or `args` without `next`", f"`case` of {what}")
        self._retries(step, entries, what)
        self._sinks(step, entries, what)
        router = self._arcs([entry for entry in entries if entry.arcs], what, at)
        step.fields.pop("next", None)
        step.keys.pop("next", None)
        if router is not None:
            step.put("next", router, at)

    # -- reading -----------------------------------------------------------------------------

    def _entries(self, node: Items, what: str) -> list[_Entry]:
        found: list[_Entry] = []
        for number, each in enumerate(node, 1):
            if isinstance(each, Scalar):
                found.append(_Entry(None, each.position, [_arc_to(each)]))
            elif isinstance(each, Fields):
                found += self._entry(each, what, last=number == len(node.items))
            else:
                self._seen.findings.wrong_type(each, f"an entry of {what}", "a mapping")
        return found

    def _entry(self, node: Fields, what: str, last: bool) -> list[_Entry]:
        if "step" in node and "then" not in node:  # an arc as it is
            shape = Shape(node)
            when = shape.take("when")[0] if "when" in shape else None
            return [_Entry(when, node.position, [shape.node()])]
        found: list[_Entry] = []
        when = node.get("when")
        if "then" in node:
            entry = _Entry(when, node.position)
            self._then(entry, node.fields["then"], what)
            found.append(entry)
        if "else" in node:
            inner = node.fields["else"]
            if isinstance(inner, Fields) and "then" in inner:
                inner = inner.fields["then"]
            otherwise = _Entry(None, node.keys["else"])
            self._then(otherwise, inner, what)
            if not last:
                self._not_yet(node.keys["else"], "`else` before the last entry", what)
            found.append(otherwise)
        for key in node.fields:
            if key not in ("when", "then", "else", "desc", "description", "name"):
                self._not_yet(node.keys[key], f"`{key}` of an entry", what)
        return found

    def _then(self, entry: _Entry, node: Node, what: str) -> None:
        if isinstance(node, Scalar):
            entry.arcs.append(_arc_to(node))
        elif isinstance(node, Items):
            for each in node:
                self._then(entry, each, what)
        elif isinstance(node, Fields) and "step" in node:
            entry.arcs.append(node)
        elif isinstance(node, Fields):
            for key in node.fields:
                self._action(entry, key, node, what)

    def _action(self, entry: _Entry, key: str, node: Fields, what: str) -> None:
        value, at = node.fields[key], node.keys[key]
        if key == "next":
            self._then(entry, value, what)
        elif key == "set":
            self._set(entry, value, what)
        elif key == "args" and isinstance(value, Fields):
            entry.args = value
        elif key == "retry" and isinstance(value, Fields):
            if any(page in value for page in NEXT_PAGE):
                self._not_yet(at, "a `retry` that fetches further pages", what, PAGES_HINT)
            else:
                entry.retry = value
        elif key == "sink" and after_success(entry.when) and sink_task(value) is not None:
            entry.sink = value
        else:
            self._not_yet(at, f"`{key}`", what, PAGES_HINT if key in ("collect", "call") else "")

    def _set(self, entry: _Entry, node: Node, what: str) -> None:
        """`[{name, value}]`, `{name: value}`, `{ctx: {name: value}}` or `{ctx.name: value}`."""
        if isinstance(node, Items):
            for each in node:
                name = each.get("name") if isinstance(each, Fields) else None
                if isinstance(each, Fields) and isinstance(name, Scalar) and "value" in each:
                    entry.sets[str(name.value)] = each.fields["value"]
                else:
                    self._seen.findings.wrong_type(
                        each, f"an entry of `set` in {what}", "a mapping"
                    )
        elif isinstance(node, Fields):
            for key, value in node.fields.items():
                if key in ("ctx", "vars") and isinstance(value, Fields):
                    entry.sets.update(value.fields)
                else:
                    entry.sets[key.removeprefix("ctx.").removeprefix("vars.")] = value

    def _router(self, node: Node, what: str) -> list[_Entry]:
        """`next` beside `case` in another shape: a name, an arc or the router itself."""
        if isinstance(node, Scalar):
            return [_Entry(None, node.position, [_arc_to(node)])]
        arcs = node.get("arcs") if isinstance(node, Fields) else None
        if isinstance(arcs, Items):
            return self._entries(arcs, f"`next` of {what}")
        return self._entries(Items((node,), node.position), f"`next` of {what}")

    def _not_yet(self, at: Position, thing: str, what: str, hint: str = "") -> None:
        self._seen.findings.not_yet(at, f"{thing} in {what}", hint)

    # -- writing -----------------------------------------------------------------------------

    def _retries(self, step: Shape, entries: list[_Entry], what: str) -> None:
        """Entries that try again: the `retry` of the task."""
        wanted = [entry for entry in entries if entry.retry is not None]
        if not wanted:
            return
        tool, at = step.mapping("tool"), wanted[0].at
        if tool is None or "retry" in tool or any(entry.when is None for entry in wanted):
            self._not_yet(at, "this `retry`", what, "write `retry` on the task")
            return
        tries: list[Node] = []
        for entry in wanted:
            assert entry.when is not None, "just looked at"
            assert entry.retry is not None, "just looked at"
            tries.append(fields({"when": condition(entry.when), "then": entry.retry}, entry.at))
        shape = Shape(tool)
        shape.put("retry", items(tries, at), at)
        step.fields["tool"] = shape.node()

    def _sinks(self, step: Shape, entries: list[_Entry], what: str) -> None:
        """What is to be done with the result after every success belongs to the task."""
        wanted = [entry for entry in entries if entry.sink is not None]
        if not wanted:
            return
        tool, sink = step.mapping("tool"), wanted[0].sink
        if tool is None or "sink" in tool or len(wanted) > 1 or sink is None:
            self._not_yet(wanted[-1].at, "this `sink`", what, "write a task that stores")
            return
        shape = Shape(tool)
        shape.put("sink", sink, wanted[0].at)
        step.fields["tool"] = shape.node()

    def _arcs(self, entries: list[_Entry], what: str, at: Position) -> Fields | None:
        if not entries:
            return None
        forks = any(len(entry.arcs) > 1 for entry in entries)
        before: list[str] = []
        arcs: list[Node] = []
        for entry in entries:
            when = None if entry.when is None else condition(entry.when)
            if forks:
                own = _expression(when)
                if own is None:
                    self._not_yet(entry.at, "several steps after such a condition", what)
                    continue
                when = Scalar(_only(own, before), entry.at) if before or own != "true" else None
                before.append(own)
            arcs += [_with(arc, when, entry) for arc in entry.arcs]
        mode = "inclusive" if forks else "exclusive"
        spec = fields({"mode": Scalar(mode, at)}, at)
        return fields({"spec": spec, "arcs": items(arcs, at)}, at)


def condition(node: Node) -> Node:
    """`{{ a }} == b`, where text is compared with text, as one expression."""
    text = node.value if isinstance(node, Scalar) else None
    match = _COMPARED.fullmatch(text) if isinstance(text, str) else None
    if match is None or match[4] == "":
        return node
    left, sign, other, word = match[1].strip(), match[2], match[3], match[4]
    if other is not None:
        right = f"({other.strip()}) | string | lower"
    else:
        quoted = _QUOTED.fullmatch(word.strip())
        plain = word.strip() if quoted is None else quoted[1] or quoted[2] or ""
        if "'" in plain or "\\" in plain:
            return node
        right = f"'{plain.lower()}'"
    return Scalar(f"{{{{ ({left}) | string | lower {sign} {right} }}}}", node.position)


def _is_entry(node: Node) -> bool:
    return isinstance(node, Fields) and "then" in node and "step" not in node


def _arc_to(name: Scalar) -> Fields:
    return fields({"step": name}, name.position)


def _expression(when: Node | None) -> str | None:
    """The condition without its braces; None when it is no single expression."""
    if when is None:
        return "true"
    value = when.value if isinstance(when, Scalar) else None
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return None
    match = _WHOLE.fullmatch(value)
    if match is not None:
        return match[1].strip()
    return None if "{{" in value or "{%" in value else value.strip()


def _only(own: str, before: list[str]) -> str:
    """It holds, and nothing before it does."""
    denied = " and ".join(f"not ({each})" for each in before)
    return f"{{{{ ({own}) and {denied} }}}}" if denied else f"{{{{ {own} }}}}"


def _with(arc: Fields, when: Node | None, entry: _Entry) -> Fields:
    """The arc with the condition of its entry, and with what the entry sets and hands on."""
    shape = Shape(arc)
    if when is not None and "when" not in shape:
        shape.put("when", when, entry.at)
    if entry.args is not None and "args" not in shape:
        shape.put("args", entry.args, entry.args.position)
    for name, value in entry.sets.items():
        shape.deepen(("set_ctx", name), value, value.position)
    return shape.node()
