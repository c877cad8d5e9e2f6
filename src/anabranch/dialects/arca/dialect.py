"""The dialect of Arca definitions, as the registry knows it."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.dialects.arca.plan import Plans
from anabranch.dialects.nodes import Fields
from anabranch.dialects.port import Options
from anabranch.dialects.source import Document
from anabranch.net.net import Net
from anabranch.net.problems import Problem


class Arca:
    name = "arca"
    tolerates: frozenset[str] = frozenset()

    def compile(
        self,
        document: Document,
        root: Fields,
        options: Options,  # noqa: ARG002 - the port's signature
    ) -> tuple[Net | None, Sequence[Problem]]:
        return Plans(document, root).compile()
