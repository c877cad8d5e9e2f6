"""Random playbooks in which people say yes and no, and twins in which nobody is asked.

Whoever writes a decision may leave its arcs unguarded, name an arc for a no, or both. The twin has
an ordinary step there and only the arcs that the verdict takes by the documentation: an arc without
a guard means yes, and a no follows only an arc that asks for it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from .features import Text, Writer

REJECTED = "{{ outcome.status == 'error' }}"
APPROVED = "{{ outcome.status == 'ok' }}"


@dataclass
class Asking:
    """A playbook, what is said to each of its decisions, and the twin for any such verdicts."""

    text: Text
    verdicts: dict[str, bool]

    def twin(self, verdicts: Mapping[str, bool]) -> Text:
        copy = json.loads(json.dumps(self.text.definition))
        for step in copy["workflow"]:
            if step["step"] in verdicts:
                step["tool"] = {"kind": "noop"}
                routes = step["next"]
                routes["arcs"] = _taken(routes, approved=verdicts[step["step"]])
                if not routes["arcs"]:
                    del step["next"]
        return Text(copy, self.text.brittle, [], self.text.flaky)

    @property
    def stops_at(self) -> str:
        """The first decision whose no leads nowhere."""
        for step in self.text.definition["workflow"]:
            rejected = not self.verdicts.get(step["step"], True)
            if rejected and not _taken(step["next"], approved=False):
                return str(step["step"])
        return ""


def _taken(routes: Mapping[str, Any], *, approved: bool) -> list[dict[str, Any]]:
    asked_for = (None, APPROVED) if approved else (REJECTED,)
    arcs = [arc for arc in routes["arcs"] if arc.get("when") in asked_for]
    exclusive = routes.get("spec", {}).get("mode", "exclusive") == "exclusive"
    plain = [{key: value for key, value in arc.items() if key != "when"} for arc in arcs]
    return plain[:1] if exclusive else plain


def asking(seed: int) -> Asking:
    return DecidingWriter(Random(f"decisions {seed}")).asking(seed)


@dataclass
class DecidingWriter(Writer):
    verdicts: dict[str, bool] = field(default_factory=dict)

    def asking(self, seed: int) -> Asking:
        self._decides()
        text = self.text(seed)
        text.definition["executor"] = {"spec": {"on_failure": "handled"}}
        return Asking(text, self.verdicts)

    def _section(self) -> None:
        if self.dice.random() < 0.4:
            self._decides()
        else:
            super()._section()

    def _asks(self) -> None:
        self._decides()

    def _decides(self) -> None:
        name = self._add({"tool": {"kind": "decision", "ask": "Go on?"}})
        self.decisions.append(name)
        write = self.dice.choice((self._one_way, self._two_ways, self._two_ways, self._both_meet))
        write(name)

    def _one_way(self, name: str) -> None:
        """Only a yes goes on. Where the arc leads is written by `_link`."""
        self.verdicts[name] = self.dice.random() < 0.7
        after = self._grown()
        arc: dict[str, Any] = {"step": f"{name}o", "args": {"rows": f"{{{{ {self._list()} }}}}"}}
        if self.dice.random() < 0.5:
            arc["when"] = APPROVED
        self.steps[-1]["next"] = {"arcs": [arc]}
        self._add({"tool": {"kind": "noop", "result": after}}, f"{name}o")
        self.lists.append(f"{name}o.rows")

    def _two_ways(self, name: str) -> None:
        """A yes and a no go on by steps of their own, in either order of their arcs."""
        self.verdicts[name] = self.dice.random() < 0.4
        yes, no, meet = f"{name}y", f"{name}n", f"{name}m"
        given = {"args": {"rows": f"{{{{ {self._list()} }}}}"}}
        arcs: list[dict[str, Any]] = [
            {"step": yes, **given},
            {"step": no, "when": REJECTED, **given},
        ]
        if self.dice.random() < 0.5:
            arcs[0]["when"] = APPROVED
        if self.dice.random() < 0.5:
            arcs.reverse()
        routes: dict[str, Any] = {"arcs": arcs}
        if self.dice.random() < 0.4:
            routes["spec"] = {"mode": "inclusive"}
        self.steps[-1]["next"] = routes
        for way in (yes, no):
            result = {"way": way, "rows": "{{ args.rows }}"}
            onwards = {"arcs": [{"step": meet, "args": {"rows": "{{ args.rows }}", "way": way}}]}
            self._add({"tool": {"kind": "noop", "result": result}, "next": onwards}, way)
        self._met(meet)

    def _both_meet(self, name: str) -> None:
        """Both lead to one step, which is told which it was."""
        self.verdicts[name] = self.dice.random() < 0.4
        meet, rows = f"{name}m", f"{{{{ {self._list()} }}}}"
        self.steps[-1]["next"] = {
            "arcs": [
                {"step": meet, "when": REJECTED, "args": {"rows": rows, "way": "no"}},
                {"step": meet, "args": {"rows": rows, "way": "yes"}},
            ]
        }
        self._met(meet)

    def _met(self, meet: str) -> None:
        result = {"rows": "{{ args.rows }}", "way": "{{ args.way }}"}
        self._add({"tool": {"kind": "noop", "result": result}}, meet)
        self.lists.append(f"{meet}.rows")
