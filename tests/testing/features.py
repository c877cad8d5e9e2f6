"""Random playbooks whose outcome does not depend on order or time, for comparing how they are run.

Values grow and shrink on their way: through results, the context and its reducers, arguments of
arcs, guards, loops in order and side by side, joins, decisions. Every key of the context has one
writer, or a reducer that does not care about order; results of parallel loops are read as a whole.
So two runs of one text may differ in nothing but how values are kept, how loops are cut, where the
engine dies and what is done again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from random import Random
from typing import Any

SIZES = (1, 3, 12, 50)
HEAD = {"apiVersion": "noetl.io/v2", "kind": "Playbook"}


@dataclass
class Text:
    """A playbook; `brittle` are steps of kind `call`, which a script may let fail at first."""

    definition: dict[str, Any]
    brittle: list[str]
    decisions: list[str]
    flaky: list[str] = field(default_factory=list)  # loops in order whose items may be tried again

    def script(self, answer: Any) -> dict[str, Any]:
        """Every call answered like that, also those of items."""
        return dict.fromkeys([*self.brittle, *(f"{name}/t" for name in self.flaky)], answer)

    def source(self, shard_size: Any = None, kept: int | None = None) -> str:
        """The text, with loops cut like that, and a policy that puts larger results aside."""
        copy = json.loads(json.dumps(self.definition))
        for step in copy["workflow"]:
            spec = step.setdefault("spec", {})
            if "loop" in step and shard_size is not None:
                spec.setdefault("fanout", {})["shard_size"] = shard_size
            scripted = isinstance(step["tool"], dict) and step["tool"]["kind"] != "noop"
            if kept is not None and not scripted:  # what is scripted has no result of its own
                spec["result"] = {"inline_max_bytes": kept}
        return json.dumps(copy) + "\n"


def random_text(seed: int) -> Text:
    return Writer(Random(f"features {seed}")).text(seed)


@dataclass
class Writer:
    dice: Random
    steps: list[dict[str, Any]] = field(default_factory=list)
    brittle: list[str] = field(default_factory=list)
    decisions: list[str] = field(default_factory=list)
    flaky: list[str] = field(default_factory=list)
    #: Expressions that give a list of numbers wherever they are read from here on.
    lists: list[str] = field(default_factory=lambda: ["workload.rows"])

    def text(self, seed: int) -> Text:
        size = self.dice.choice(SIZES)
        for _ in range(self.dice.choice((2, 3, 4, 5))):
            self._section()
        self._add({"tool": {"kind": "noop", "result": self._everything()}})
        self._link()
        definition = {
            **HEAD,
            "metadata": {"name": f"features-{seed}"},
            "workload": {"rows": list(range(size)), "pad": "x" * self.dice.choice((0, 5, 900))},
            "workflow": self.steps,
        }
        return Text(definition, self.brittle, self.decisions, self.flaky)

    # -- sections, one after the other -------------------------------------------------------

    def _section(self) -> None:
        make = self.dice.choice(
            (
                self._result,
                self._result,
                self._called,
                self._context,
                self._guarded,
                self._ordered_loop,
                self._tried_again,
                self._parallel_loop,
                self._over_results,
                self._fork,
                self._asks,
            )
        )
        make()

    def _name(self) -> str:
        return f"s{len(self.steps)}"

    def _add(self, step: dict[str, Any], name: str = "") -> str:
        name = name or self._name()
        self.steps.append({"step": name, **step})
        return name

    def _link(self) -> None:
        """Each section leads to the one after it; arcs that are there stay."""
        for step, after in zip(self.steps, self.steps[1:], strict=False):
            step.setdefault("next", {"arcs": [{"step": after["step"]}]})

    def _list(self) -> str:
        return self.dice.choice(self.lists)

    def _grown(self) -> Any:
        """A value with a list of numbers under `rows`, more or fewer than it is made of."""
        source = self._list()
        how = self.dice.choice(("same", "same", "twice", "head", "rich"))
        rows = {
            "same": f"{{{{ {source} }}}}",
            "twice": f"{{{{ {source} + {source} }}}}",
            "head": f"{{{{ {source}[:3] }}}}",
            "rich": f"{{{{ {source} | map('int') | list }}}}",
        }[how]
        return {"rows": rows, "count": f"{{{{ {source} | length }}}}", "pad": "{{ workload.pad }}"}

    def _result(self) -> None:
        name = self._add({"tool": {"kind": "noop", "result": self._grown()}})
        self.lists.append(f"{name}.rows")

    def _called(self) -> None:
        """Work that a script answers, by what it is given."""
        name = self._add({"tool": {"kind": "call", "rows": f"{{{{ {self._list()} }}}}"}})
        self.brittle.append(name)
        self.lists.append(f"{name}.rows")

    def _context(self) -> None:
        name, key = self._name(), f"k{len(self.steps)}"
        wholes: dict[str, Any] = {
            f"{key}_set": f"{{{{ {self._list()} }}}}",
            f"{key}_list": {"reduce": "append", "value": f"{{{{ {self._list()} | length }}}}"},
            f"{key}_map": {"reduce": "merge", "value": {name: f"{{{{ {self._list()} }}}}"}},
        }
        self._add({"tool": {"kind": "noop"}, "set_ctx": wholes})
        again = {
            f"{key}_list": {"reduce": "append", "value": f"{{{{ ctx.{key}_set }}}}"},
            f"{key}_map": {"reduce": "merge", "value": {"more": f"{{{{ {self._list()} }}}}"}},
        }
        self._add({"tool": {"kind": "noop"}, "set_ctx": again})
        self.lists += [f"ctx.{key}_set", f"ctx.{key}_map.more", f"ctx.{key}_map.{name}"]

    def _guarded(self) -> None:
        """One of two ways, by what is in a value; the way hands a list on."""
        source, limit = self._list(), self.dice.choice((0, 2, 50, 900))
        name = self._add({"tool": {"kind": "noop", "result": {"x": 1}}})
        many, few, meet = f"{name}m", f"{name}f", f"{name}j"
        given = {"args": {"rows": f"{{{{ {source} }}}}"}}
        self.steps[-1]["next"] = {
            "arcs": [
                {"step": many, "when": f"{{{{ {source} | length > {limit} }}}}", **given},
                {"step": few, **given},
            ]
        }
        for way, word in ((many, "many"), (few, "few")):
            result = {"word": word, "rows": "{{ args.rows }}"}
            arcs = {"arcs": [{"step": meet, "args": {"rows": "{{ args.rows }}"}}]}
            self._add({"tool": {"kind": "noop", "result": result}, "next": arcs}, way)
        self._add({"tool": {"kind": "noop", "result": {"rows": "{{ args.rows }}"}}}, meet)
        self.lists.append(f"{meet}.rows")

    def _ordered_loop(self) -> None:
        key = f"n{len(self.steps)}"
        name = self._add(
            {
                "loop": {"in": f"{{{{ {self._list()} }}}}", "iterator": "row"},
                "tool": {
                    "kind": "noop",
                    "result": "{{ iter.row }}",
                    "set_ctx": {key: f"{{{{ (ctx.{key} | default(0)) + iter.row + 1 }}}}"},
                },
            }
        )
        self.lists.append(f"{name}.results")

    def _tried_again(self) -> None:
        """A loop in order: each item adds to what those before it came to."""
        key = f"b{len(self.steps)}"
        retried = self.dice.choice(({"fanout": {"max_job_retries": 2}}, {"retry": {"attempts": 3}}))
        balance = f"{{{{ (ctx.{key} | default(100)) * 2 % 1009 + iter.row }}}}"
        name = self._add(
            {
                "spec": retried,
                "loop": {"in": f"{{{{ {self._list()}[:9] }}}}", "iterator": "row"},
                "tool": [
                    {
                        "name": "t",
                        "kind": "call",
                        "rows": ["{{ iter.row }}"],
                        "set_ctx": {
                            key: balance,
                            f"{key}_seen": {"reduce": "append", "value": "{{ iter.row }}"},
                        },
                    }
                ],
            }
        )
        self.flaky.append(name)
        self.lists.append(f"ctx.{key}_seen")

    def _parallel_loop(self) -> None:
        name = self._add(
            {
                "loop": {
                    "in": f"{{{{ {self._list()} }}}}",
                    "iterator": "row",
                    "spec": {"mode": "parallel", "max_in_flight": self.dice.choice((2, 5, 30))},
                },
                "tool": {"kind": "noop", "result": "{{ iter.row + 1 }}"},
            }
        )
        self.lists.append(f"{name}.results")

    def _over_results(self) -> None:
        """A loop over the results of another, which it finds by their reference."""
        result = ["{{ iter.row }}", 1, "{{ workload.pad }}"]
        arc = {"step": f"s{len(self.steps) + 1}", "args": {"refs": "{{ fanin.refs }}"}}
        self._add(
            {
                "loop": {"in": f"{{{{ {self._list()}[:20] }}}}", "iterator": "row"},
                "tool": {"kind": "noop", "result": result},
                "next": {"arcs": [arc]},
            }
        )
        name = self._add(
            {
                "loop": {"in": {"results_of": "{{ args.refs }}"}, "iterator": "one"},
                "tool": {"kind": "noop", "result": "{{ iter.one[:2] | sum }}"},
            }
        )
        self.lists.append(f"{name}.results")

    def _fork(self) -> None:
        """Branches side by side that meet again, each with a value of its own."""
        name = self._add({"tool": {"kind": "noop"}})
        ways = [f"{name}{letter}" for letter in "abc"[: self.dice.choice((2, 3))]]
        meet = f"{name}z"
        self.steps[-1]["next"] = {
            "spec": {"mode": "inclusive"},
            "arcs": [{"step": way} for way in ways],
        }
        for way in ways:
            arcs = {"arcs": [{"step": meet, "args": {way: f"{{{{ {way}.rows }}}}"}}]}
            self._add({"tool": {"kind": "noop", "result": self._grown()}, "next": arcs}, way)
        result = {"rows": " + ".join(f"args.{way}" for way in ways)}
        result["rows"] = f"{{{{ {result['rows']} }}}}"
        self._add({"spec": {"join": "all"}, "tool": {"kind": "noop", "result": result}}, meet)
        self.lists += [f"{meet}.rows", *(f"{way}.rows" for way in ways)]

    def _asks(self) -> None:
        name = self._add({"tool": {"kind": "decision", "ask": "Go on?"}})
        self.decisions.append(name)

    # -- the end -----------------------------------------------------------------------------

    def _everything(self) -> dict[str, Any]:
        """A digest of every list that there is."""
        return {
            f"d{number}": [f"{{{{ {each} | length }}}}", f"{{{{ {each} | sum }}}}"]
            for number, each in enumerate(dict.fromkeys(self.lists))
        }
