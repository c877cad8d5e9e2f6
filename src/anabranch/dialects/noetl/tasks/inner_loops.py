"""`loop` of a task: its work once per item, inside the pipeline.

It knows less than the loop of a step: a list, a mapping or a range to go through, one item after
the other or several at once, and whether an item that fails ends it.
"""

from __future__ import annotations

from anabranch.dialects.findings import Findings, Section
from anabranch.dialects.nodes import Fields
from anabranch.dialects.noetl.loops import IN_FLIGHT, Loops, read_failure
from anabranch.dialects.noetl.sources import DESCRIPTORS, Sources
from anabranch.dialects.noetl.templates import Templates
from anabranch.expressions.port import Constant, Expression
from anabranch.net.program import InnerLoop, Program

LAZY = tuple(name for name in DESCRIPTORS if name != "range")


def read_inner_loop(section: Section, templates: Templates, findings: Findings) -> InnerLoop:
    """The loop; its program is put in by whoever reads the task."""
    loops = Loops(templates, findings)
    over = Sources(templates, findings).over(section)
    node = section.node.get("in")
    lazy = [key for key in LAZY if isinstance(node, Fields) and key in node]
    if lazy:
        message = f"`in` of {section.what} describes a collection ({lazy[0]}) to be read lazily"
        hint = "loop over it in a step; a task goes through a list, a mapping or a range"
        assert node is not None, "it has a key"
        findings.add(node.position, "bad-choice", message, hint)
    iterator = loops.iterator(section)
    spec = section.section("spec")
    window: Expression | None = None
    best_effort = False
    if spec is not None:
        mode = loops.mode(spec) if "mode" in spec else "sequential"
        in_flight = spec.ask("max_in_flight")
        policy = spec.section("policy")
        if policy is not None:
            best_effort = read_failure(policy) == "best_effort"
            policy.finish()
        spec.finish(also=("mode",))
        if mode == "parallel":
            window = Constant(IN_FLIGHT) if in_flight is None else loops.count(in_flight)
        elif in_flight is not None:
            loops.no_effect(section, in_flight)
    section.finish()
    return InnerLoop(Program(()), over, iterator, window, best_effort)
