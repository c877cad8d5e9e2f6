"""The dialect of playbooks, as the registry knows it."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.dialects.nodes import Fields
from anabranch.dialects.noetl.playbook import Playbook
from anabranch.dialects.port import Options
from anabranch.dialects.source import Document
from anabranch.net.net import Net
from anabranch.net.problems import Problem


class Noetl:
    name = "noetl"
    tolerates: frozenset[str] = frozenset()

    def compile(
        self, document: Document, root: Fields, options: Options
    ) -> tuple[Net | None, Sequence[Problem]]:
        return Playbook(document, root, options).compile()
