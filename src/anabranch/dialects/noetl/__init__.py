"""NoETL playbooks: entry, admission, routing and termination as in canonical v10.

`playbook.py` reads the whole, `steps.py` one step; `tasks.py` and `inputs.py` its tool,
`admission.py` its gate, `routing.py` its arcs, `patches.py` its context writes. `templates.py`
compiles what stands between braces, `names.py` says what can be read there.
"""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.dialects.nodes import Fields, Scalar
from anabranch.dialects.noetl.playbook import Playbook
from anabranch.dialects.port import Options
from anabranch.dialects.source import Document
from anabranch.net.net import Net
from anabranch.net.problems import Problem

__all__ = ["Noetl"]


class Noetl:
    name = "noetl"

    def recognises(self, root: Fields) -> bool:
        version, kind = root.get("apiVersion"), root.get("kind")
        if isinstance(version, Scalar) and str(version.value).startswith("noetl.io/"):
            return True
        return (isinstance(kind, Scalar) and kind.value == "Playbook") or "workflow" in root

    def compile(
        self, document: Document, root: Fields, options: Options
    ) -> tuple[Net | None, Sequence[Problem]]:
        return Playbook(document, root, options).compile()
