"""Which credentials a worker may ask for: those that the recorded task looks up, and no others.

    {{ keychain.api.token }}, auth: api     the name stands in the task
    {{ keychain[workload.which].token }}    the name is computed, and so it is computed here, from
                                            the record, when the job is handed out
    code of python                          the entries of the keychain that the code names

An entry of the keychain is looked up with all that it is made of. What only the worker knows (the
tasks before in its pipeline, its environment, values of secrets) leads to no name. Workers have a
hand in what a run makes (its context, results, arguments): a name that is computed from those has
to be a value in the definition or in the input as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from anabranch.dialects.noetl.tasks.code_reads import CodeInputs
from anabranch.errors import ExpressionError, Refused
from anabranch.expressions.jinja.jinja import TemplateTree
from anabranch.expressions.port import Constant
from anabranch.net.net import Net, Step, Work
from anabranch.net.program import Iteration, Program, Rule, TaskSpec, program_of
from anabranch.net.reads import KEYCHAIN, expressions_in, keychain_names, reads_keychain
from anabranch.operations.read.steps.starred import Starred
from anabranch.operations.workers.recorded_names import OnlyThere
from anabranch.runtime.jobs.wire import Item
from anabranch.work.evaluations import evaluate_with
from anabranch.work.loops.items import iter_names, shard_id
from anabranch.work.port import Task
from anabranch.work.secrets.credential_entries import MANAGED, credential_of

_NAME_FIELDS = ("name", "secret_name")  # of the kind `secrets`
_UNKNOWN = object()  # only the worker can say


class Lookups(msgspec.Struct, frozen=True):
    """The credentials that a job looks up by name."""

    named: frozenset[str]  # by people: in the definition, or computed from the input alone
    made: frozenset[str]  # computed from what the run has made

    def require(self, step: str, name: str, wrote: Callable[[str], bool]) -> None:
        """Raises `Refused` for any other name. `wrote` says whether people have written it."""
        if name in self.named or (name in self.made and wrote(name)):
            return
        raise Refused(
            f"no task of step {step!r} looks up the credential {name[:100]!r}; a computed name is "
            "computed by the server from the input of the run, or from its context and results "
            "where the name is a value in the definition or the input as well. What only the "
            "worker knows leads to none: let an earlier step compute the name, or let the engine "
            "do the step",
            code="credential_refused",
        )


class _AskedNames(Starred):
    """A keychain that notes the names it is asked for."""

    def __init__(self, entries: Iterable[str]) -> None:
        super().__init__(dict.fromkeys(entries, Starred()))
        self.asked: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self.asked.add(key)
        return Starred()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "gave":  # a keyring that has given nothing
            raise AttributeError(name)
        return self[name]

    def __contains__(self, key: object) -> bool:
        return dict.__contains__(self, key)

    def get(self, key: str, _default: Any = None) -> Any:
        return self[key]


class _Template(msgspec.Struct, frozen=True):
    """A part of a task that looks up credentials."""

    expression: Any
    task: str  # what of the job it sees: `alone`, `item` (of its loop or pipeline) or `inside`
    gives_name: bool = False  # its value is the name

    @property
    def computes(self) -> bool:
        """There may be more names than stand in it."""
        return self.gives_name or keychain_names(self.expression)[1]

    def reads_only(self, roots: frozenset[str]) -> bool:
        paths = getattr(self.expression, "reads", None)
        return paths is not None and all(path[0] in roots for path in paths)


class StepLookups:
    """What the tasks of one step look up, as far as the definition says."""

    def __init__(self, net: Net, name: str) -> None:
        self._step: Step = net.steps[name]
        self._entries = {str(entry["name"]): entry for entry in net.keychain}
        templates = list(_templates(self._step.work)) if net.has_secrets else []
        self._static = _entries_in_code(self._step, self._entries).union(
            *(keychain_names(template.expression)[0] for template in templates)
        )
        self._templates = [one for one in templates if one.computes]

    @property
    def by_item(self) -> bool:
        """The items of the loop say what is looked up."""
        return self._step.loop is not None and any(one.task == "item" for one in self._templates)

    @property
    def computed(self) -> bool:
        """Something is to be computed: what is looked up follows from the record of the job."""
        entries = [self._entries[name] for name in self._static if name in self._entries]
        return bool(self._templates) or any(True for _ in expressions_in(entries))

    async def of_job(
        self,
        names: Mapping[str, Any],
        task: Task,
        items: Sequence[Item] = (),
        *,
        listed: bool = False,
        by_people: bool = False,
    ) -> Lookups:
        """`names` as `recorded_names` gives them. `listed` says that the items stand in the record
        itself, and `by_people` that no other run has given the input."""
        sure = frozenset({KEYCHAIN, "workload"} if by_people else {KEYCHAIN})
        named, made = set(self._static), set[str]()
        for template in self._templates:
            if template.task == "alone":
                seen: Iterable[Mapping[str, Any]] = [names]
            elif template.task == "inside":
                seen = [{**names, "ctx": OnlyThere(), "local": OnlyThere()}]
            else:
                seen = self._names_of_items(names, items, task)
            of_item = listed and template.task == "item"
            from_items = self._item_roots(sure) if of_item else frozenset[str]()
            into = named if template.reads_only(sure | from_items) else made
            for each in seen:
                into |= await evaluate_with(each, partial(self._asked, template))
        return Lookups(
            await evaluate_with(names, partial(self._credentials, named)),
            await evaluate_with(names, partial(self._credentials, made)),
        )

    def _item_roots(self, sure: frozenset[str]) -> frozenset[str]:
        """The names under which templates see an item, where its collection is sure as well."""
        step, program = self._step, program_of(self._step)
        if step.loop is None or step.work is None or program is None or _writes_iter(program):
            return frozenset()
        iteration, paths = step.work.program, getattr(step.loop.over, "reads", None)
        if paths is None or not all(path[0] in sure for path in paths):
            return frozenset()
        return frozenset({"iter", "item", iteration.iterator})

    def _names_of_items(
        self, names: Mapping[str, Any], items: Sequence[Item], task: Task
    ) -> Iterator[Mapping[str, Any]]:
        """What the tasks of a program see, for each item; of what they write nothing is known."""
        program = program_of(self._step)
        assert program is not None
        assert self._step.work is not None
        ctx = OnlyThere() if program.writes else names["ctx"]
        if self._step.loop is None or _writes_iter(program):
            own: Any = OnlyThere() if _writes_iter(program) else {}
            yield {**names, "ctx": ctx, "local": OnlyThere({"iter": own})}
            return
        iteration: Iteration = self._step.work.program
        for index, key, value in items:
            own = iter_names(iteration, task, shard_id(task), index, key, value)
            yield {**names, "ctx": ctx, "local": OnlyThere({"iter": own})}

    def _asked(self, template: _Template, names: Mapping[str, Any]) -> set[str]:
        ring = _AskedNames(self._entries)
        value = _value(template.expression, {**names, KEYCHAIN: ring})
        if template.gives_name and isinstance(value, str):
            ring.asked.add(value)
        return ring.asked

    def _credentials(self, looked_up: Iterable[str], names: Mapping[str, Any]) -> frozenset[str]:
        """The credentials behind these names: those of entries, and what entries are made of."""
        credentials, waiting, seen = set[str](), list(looked_up), set[str]()
        while waiting:
            name = waiting.pop()
            entry = self._entries.get(name)
            if entry is None:
                credentials.add(name)
            elif name not in seen:
                seen.add(name)
                by_name, parts = self._made_of(entry, names)
                credentials |= by_name
                waiting.extend(parts)
        return frozenset(credentials)

    def _made_of(
        self, entry: Mapping[str, Any], names: Mapping[str, Any]
    ) -> tuple[set[str], frozenset[str]]:
        """The credentials that an entry stands for, and what its templates look up."""
        ring = _AskedNames(self._entries)
        seen = {"workload": names["workload"], "env": OnlyThere(), KEYCHAIN: ring}
        values = {key: _value(part, seen) for key, part in entry.items()}
        static, _ = keychain_names(entry)
        by_name = {credential_of(values)} if entry.get("kind") in MANAGED else set()
        if entry.get("kind") == "oauth2" and not keychain_names(entry.get("auth"))[0]:
            by_name.add(values.get("auth"))
        return {name for name in by_name if isinstance(name, str)}, static | ring.asked


# -- the parts of a step -----------------------------------------------------------------------


def _templates(work: Work | None) -> Iterator[_Template]:
    if work is None:
        return
    plain = msgspec.structs.replace(work, program=None)
    yield from _in_task(plain, work.kind, work.inputs, "alone")
    program = work.program.program if isinstance(work.program, Iteration) else work.program
    if isinstance(program, Program):
        yield from _in_program(program, "item")


def _in_program(program: Program, task: str) -> Iterator[_Template]:
    for spec in program.tasks:
        own = msgspec.structs.replace(spec, hooks=None, loop=None)
        yield from _in_task(own, spec.kind, spec.inputs, task)
        hooks, inner = spec.hooks, spec.loop
        nested = (hooks.before, hooks.after, hooks.leaving) if hooks is not None else ()
        for each in (*nested, inner.program if inner is not None else None):
            if each is not None:
                yield from _in_program(each, "inside")
        if inner is not None:
            parts = msgspec.structs.replace(inner, program=Program(()))
            yield from _in_task(parts, "", None, task)


def _in_task(
    parts: Work | TaskSpec | Any, kind: str, inputs: Any, task: str
) -> Iterator[_Template]:
    for expression in expressions_in(parts):
        for leaf in _leaves(expression):
            if reads_keychain(leaf):
                yield _Template(leaf, task)
    structure = _structure_of(inputs)
    if kind == "secrets" and isinstance(structure, Mapping) and KEYCHAIN in structure:
        for field in _NAME_FIELDS:
            if hasattr(structure.get(field), "evaluate"):
                yield _Template(structure[field], task, gives_name=True)


def _leaves(expression: Any) -> Iterator[Any]:
    """The templates of a structure, each of which is evaluated by itself."""
    structure = _structure_of(expression)
    if structure is None:
        yield expression
    else:
        for part in expressions_in(structure):
            yield from _leaves(part)


def _structure_of(expression: Any) -> Any:
    """What the expression is built of; None for one template."""
    if isinstance(expression, CodeInputs):
        expression = expression.inner
    if isinstance(expression, Constant):
        return expression.value
    return expression.structure if isinstance(expression, TemplateTree) else None


def _writes_iter(program: Program) -> bool:
    """Its tasks write what they see as `iter`, so that only the worker knows that."""
    tasks = list(program.every_task())
    written: list[TaskSpec | Rule] = [*tasks, *(rule for task in tasks for rule in task.rules)]
    return program.variables is not None or any(each.set_iter for each in written)


def _entries_in_code(step: Step, entries: Iterable[str]) -> frozenset[str]:
    """The entries that code can look at: those it names; where only the worker knows the code,
    all of them."""
    found = set[str]()
    for kind, inputs in _inputs_of(step):
        if kind == "python":
            code = _code_of(inputs)
            found |= {name for name in entries if code is None or _names(code, name)}
    return frozenset(found)


def _inputs_of(step: Step) -> Iterator[tuple[str, Any]]:
    if step.work is not None:
        yield step.work.kind, step.work.inputs
    program = program_of(step)
    for task in program.every_task() if program is not None else ():
        yield task.kind, task.inputs


def _code_of(inputs: Any) -> str | None:
    """The code of a python task; None where it is computed or in a file."""
    structure = _structure_of(inputs)
    code = structure.get("code") if isinstance(structure, Mapping) else None
    code = getattr(code, "value", code)
    return code if isinstance(code, str) else None


def _names(code: str, entry: str) -> bool:
    seen = "context" in code or KEYCHAIN in code
    return seen and re.search(rf"(?<![\w-]){re.escape(entry)}(?![\w-])", code) is not None


def _value(part: Any, names: Mapping[str, Any]) -> Any:
    """What a part comes to by these names, or `_UNKNOWN`."""
    if isinstance(part, Mapping):
        return {key: _value(each, names) for key, each in part.items()}
    if not hasattr(part, "evaluate"):
        return part
    try:
        return part.evaluate(names)
    except ExpressionError:
        return _UNKNOWN
