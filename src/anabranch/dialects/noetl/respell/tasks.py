"""Older and later spellings of tasks and of the rules after them."""

from __future__ import annotations

from anabranch.dialects.findings import Findings
from anabranch.dialects.nodes import Fields, Items, Node, Scalar
from anabranch.dialects.noetl.joins import Evidence
from anabranch.dialects.noetl.respell.shape import Shape, fields, items
from anabranch.dialects.noetl.tasks.clusters import respell_container
from anabranch.dialects.noetl.tasks.keys import ALIASES, KINDS
from anabranch.dialects.noetl.tasks.outputs import POLICY_KEYS
from anabranch.net.problems import Position

#: Keys of a rule that stand under `then`.
THEN = (
    *("do", "attempts", "backoff", "delay", "to", "target"),
    *("set", "set_ctx", "set_iter", "set_shared", "set_vars", "set_prev"),
)
OWN_SPEC = ("timeout", "policy", "result")
HOOKS = ("before", "after", "finally")


Places = dict[str, tuple[str, ...]]  # scope → where its keys belong


class RespellReport:
    """What was met on the way: the warnings, and which family the document belongs to."""

    def __init__(self, findings: Findings) -> None:
        self.findings = findings
        self.later: Evidence | None = None  # the first word that only C has
        self.earlier: Evidence | None = None  # the first that C does not have

    def saw_later(self, word: str, at: Position) -> None:
        self.later = self.later or (word, at)

    def saw_earlier(self, word: str, at: Position) -> None:
        self.earlier = self.earlier or (word, at)

    def old(self, at: Position, what: str, canonical: str, where: str = "") -> None:
        message = f"{what} is an old spelling"
        hint = f"write `{canonical}`{' ' if where else ''}{where}"
        self.findings.warn(at, "old-spelling", message, hint)

    def split(self, holder: Shape, key: str, places: Places, what: str = "") -> None:
        """Take `set: {scope.name: …}` apart; a scope without a place stays where it is."""
        node, at = holder.take(key)
        assert isinstance(node, Fields), "only mappings are taken apart"
        left = Shape(fields({}, node.position))
        for full, value in node.fields.items():
            scope, dot, name = full.partition(".")
            if not dot or scope not in ("ctx", "iter", "step"):
                scope, name = "", full
            place = places.get(scope)
            if place is None:
                left.put(full, value, node.keys[full])
                continue
            if isinstance(held := holder.find(*place), Fields) and name in held:
                message = f"{what or 'this'} sets {name!r} twice"
                hint = "keep one of them"
                self.findings.add(node.keys[full], "conflicting-keys", message, hint)
                continue
            if not holder.deepen((*place, name), value, node.keys[full]):
                left.put(full, value, node.keys[full])
        if left.fields:
            holder.put(key, left.node(), at)


#: Where the scopes of `set` belong, on a task or a rule and on a step.
PLACES: Places = {
    "ctx": ("set_ctx",),
    "iter": ("set_iter",),
    "step": ("set_iter",),
}


class TaskSpelling:
    def __init__(self, seen: RespellReport) -> None:
        self._seen = seen

    def tasks(self, node: Node, what: str, inherited: Fields | None = None) -> Node:
        """One task, or several in a list."""
        if not isinstance(node, Items):
            return self.task(node, f"the task of {what}", inherited)
        found = [
            self.task(each, f"task {number} of {what}", inherited)
            for number, each in enumerate(node, 1)
        ]
        return items(found, node.position)

    def task(self, node: Node, what: str, inherited: Fields | None = None) -> Node:
        if not isinstance(node, Fields):
            return node
        shape = Shape(self._labelled(node, what))
        kind = shape.fields.get("kind")
        word = str(kind.value) if isinstance(kind, Scalar) else ""
        self._inputs(shape, word, what)
        if word == "container":
            respell_container(shape)
        self._arguments(shape, inherited, what)
        if word == "artifact":
            self._artifact(shape)
        quiet = self._policy(shape, what)
        self._rules(shape, what, quiet)
        self._hooks(shape, what)
        self.writes(shape, what)
        self._result(shape, word, what)
        self._output_select(shape, word)
        if "loop" in shape and "tool" in shape:
            shape.fields["tool"] = self.tasks(shape.fields["tool"], what)
        return shape.node()

    def _labelled(self, node: Fields, what: str) -> Fields:
        """`{label: {kind: …}}` is the older way to name a task."""
        if "kind" in node or len(node.fields) != 1:
            return node
        ((label, inner),) = node.fields.items()
        if not isinstance(inner, Fields) or (label == "loop" and "kind" not in inner):
            return node
        at = node.keys[label]
        self._seen.old(at, f"{what} under its label", f"{{name: {label}, kind: …}}")
        shape = Shape(inner)
        shape.put("name", Scalar(label, at), at, before=tuple(inner.fields))
        return shape.node()

    # -- inputs ------------------------------------------------------------------------------

    def _inputs(self, task: Shape, kind: str, what: str) -> None:
        """Some playbooks put inputs under the task's `spec`."""
        spec = task.mapping("spec")
        if spec is None:
            return
        inner = Shape(spec)
        known = {*KINDS.get(kind, ()), *ALIASES.get(kind, {}), "args", "input"}
        known |= {"retry", "assert", "output_select"} if kind in KINDS else set()
        for key in [key for key in spec.fields if key in known and key in inner]:
            if key in OWN_SPEC and not (key == "result" and not _is_policy(inner.fields[key])):
                continue
            if key in task:
                continue  # both places: the reader reports the one that is wrong
            value, at = inner.take(key)
            task.put(key, value, at)
            message = f"`{key}` of `spec` of {what}"
            self._seen.old(at, message, f"{key}: …", where="on the task itself")
        task.fields["spec"] = inner.node()

    def _arguments(self, task: Shape, inherited: Fields | None, what: str) -> None:
        kind = task.fields.get("kind")
        ours = isinstance(kind, Scalar) and kind.value in KINDS
        if ours and task.mapping("with") is not None and not {"args", "input"} & task.fields.keys():
            self._seen.old(task.keys["with"], f"`with` of {what}", "args: {…}")
            task.rename("with", "args")
        if "args" in task:
            self._seen.saw_earlier("args", task.keys["args"])
        elif "input" in task:
            self._seen.saw_later("input", task.keys["input"])
            task.fields.pop("args", None)
            task.keys.pop("args", None)
            task.rename("input", "args")
        if "credential" in task and "auth" not in task.fields:
            task.rename("credential", "auth")
        if inherited is None:
            return
        own = task.fields.get("args") if "args" in task else None
        if own is not None and not isinstance(own, Fields):
            message = f"`args` of {what} is no mapping, so those of its step have no place in it"
            hint = "name each argument on the task"
            self._seen.findings.add(own.position, "conflicting-keys", message, hint)
            return
        both = Shape(inherited)
        for name, value in own.fields.items() if own is not None else ():
            both.put(name, value, own.keys[name] if own is not None else inherited.position)
        task.put("args", both.node(), inherited.position)

    def _artifact(self, task: Shape) -> None:
        """What an artifact is told may stand under its `args`."""
        args = task.mapping("args")
        if args is None:
            return
        left = Shape(args)
        for key in (*KINDS["artifact"], *ALIASES["artifact"]):
            if key in left and key not in task:
                value, at = left.take(key)
                task.put(key, value, at)
        task.fields["args"] = left.node()
        if not left.fields:
            task.take("args")

    # -- rules -------------------------------------------------------------------------------

    def _policy(self, task: Shape, what: str) -> bool:
        """`eval`, `policy` beside `spec`, and a policy that is only its rules.

        True when one warning has said enough about the rules inside."""
        moved = False
        for key in ("eval", "policy"):
            if key not in task or task.find("spec", "policy") is not None:
                continue
            node, at = task.fields[key], task.keys[key]
            path = ("spec", "policy", "rules") if isinstance(node, Items) else ("spec", "policy")
            if key == "eval" and not isinstance(node, Items):
                continue
            if task.deepen(path, node, at):
                task.take(key)
                moved = True
                self._seen.saw_earlier(key, at)
                hint = "spec: {policy: {rules: [{when: …, then: {do: …}}]}}"
                self._seen.old(at, f"`{key}` of {what}", hint)
        policy = task.find("spec", "policy")
        if isinstance(policy, Items):
            at = policy.position
            task.deepen(("spec", "policy"), fields({"rules": policy}, at), at)
            self._seen.old(at, f"the policy of {what} as a list", "policy: {rules: […]}")
        return moved

    def _hooks(self, task: Shape, what: str) -> None:
        for name in HOOKS:
            node = task.find("spec", "policy", name)
            if node is not None:
                spelled = self.tasks(node, f"`{name}` of {what}")
                task.deepen(("spec", "policy", name), spelled, node.position)

    def _rules(self, task: Shape, what: str, quiet: bool) -> None:
        rules = task.find("spec", "policy", "rules")
        if isinstance(rules, Items):
            found = [self._rule(rule, what, quiet) for rule in rules]
            at = rules.position
            task.deepen(("spec", "policy", "rules"), items(found, at), at)

    def _rule(self, node: Node, what: str, quiet: bool) -> Node:
        if not isinstance(node, Fields):
            return node
        shape = Shape(node)
        if "expr" in shape and "when" not in shape.fields:
            if not quiet:
                self._seen.old(shape.keys["expr"], f"`expr` in a rule of {what}", "when: …")
            shape.rename("expr", "when")
        flat = self._flat(shape)
        if flat is not None:
            at = flat.position
            canonical = "then: {do: …}" if "when" in shape else "else: {then: {do: …}}"
            if "when" in shape:
                shape.put("then", flat, at)
            else:
                shape.put("else", fields({"then": flat}, at), at)
            if not quiet:
                self._seen.old(at, f"a rule of {what} without `then`", canonical)
        self._otherwise(shape, what, quiet)
        for path in (("then",), ("else", "then")):
            then_node = shape.find(*path)
            if isinstance(then_node, Fields):
                shape.deepen(path, self._then(then_node, what), then_node.position)
        return shape.node()

    def _flat(self, rule: Shape) -> Fields | None:
        """The keys of `then` that stand beside `when` (as under `eval`), taken out."""
        named = [key for key in THEN if key in rule.fields]
        if not named or "then" in rule or "else" in rule:
            return None
        found = Shape(fields({}, rule.keys[named[0]]))
        for key in [key for key in rule.fields if key in named]:
            value, at = rule.take(key)
            found.put(key, value, at)
        return found.node()

    def _otherwise(self, rule: Shape, what: str, quiet: bool) -> None:
        otherwise = rule.mapping("else")
        if otherwise is None or "then" in otherwise or not otherwise.fields:
            return
        at = rule.keys["else"]
        rule.fields["else"] = fields({"then": otherwise}, otherwise.position)
        if not quiet:
            canonical = "else: {then: {do: …}}"
            self._seen.old(at, f"`else` without `then` in a rule of {what}", canonical)

    def _then(self, node: Fields, what: str) -> Fields:
        shape = Shape(node)
        if "target" in shape and "to" not in shape.fields:
            self._seen.old(shape.keys["target"], f"`target` in a rule of {what}", "to: …")
            shape.rename("target", "to")
        self.writes(shape, what)
        return shape.node()

    # -- writes and results ------------------------------------------------------------------

    def writes(self, holder: Shape, what: str, bare: str = "set_iter") -> None:
        """`set` with scopes and `set_vars`, as `set_ctx` and `set_iter`."""
        for key in ("set_ctx", "set_iter"):
            if key in holder:
                self._seen.saw_earlier(key, holder.keys[key])
        if holder.mapping("set") is not None:
            self._seen.saw_later("set", holder.keys["set"])
            self._seen.split(holder, "set", {**PLACES, "": (bare,)}, what)
        if "set_vars" not in holder:
            return
        at = holder.keys["set_vars"]
        if "set_iter" not in holder.fields:
            holder.rename("set_vars", "set_iter")
        elif holder.mapping("set_vars") is not None:
            everywhere: Places = dict.fromkeys(("", *PLACES), ("set_iter",))
            self._seen.split(holder, "set_vars", everywhere, what)
        self._seen.old(at, f"`set_vars` of {what}", "set_iter: {…}")

    def _output_select(self, task: Shape, kind: str) -> None:
        """Beside the kind it means the same as in the result policy."""
        if "output_select" not in task or kind not in KINDS:
            return
        if task.find("spec", "result", "output_select") is None:
            node, at = task.fields["output_select"], task.keys["output_select"]
            if task.deepen(("spec", "result", "output_select"), node, at):
                task.take("output_select")

    def _result(self, task: Shape, kind: str, what: str) -> None:
        for key in ("output", "result"):
            takes = kind in KINDS and key not in KINDS[kind]
            if not takes or task.mapping(key) is None or task.find("spec", "result") is not None:
                continue
            node, at = task.fields[key], task.keys[key]
            if task.deepen(("spec", "result"), node, at):
                task.take(key)
                self._seen.old(at, f"`{key}` of {what}", "spec: {result: {…}}")


def _is_policy(node: Node) -> bool:
    """Whether it reads as a result policy rather than as the result of a `noop`."""
    return isinstance(node, Fields) and bool(node.fields) and set(node.fields) <= POLICY_KEYS
