"""The dialect of orchestrations, as the registry knows it."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.dialects.nodes import Fields
from anabranch.dialects.port import Options
from anabranch.dialects.source import Document
from anabranch.dialects.xrc729.compile import compile_orchestration
from anabranch.dialects.xrc729.words import DIALECT
from anabranch.net.net import Net
from anabranch.net.problems import Problem


class Xrc729:
    name = DIALECT
    #: An error, and yet no reason not to run: a join that nobody can fill aborts its target when it
    #: opens, and the session goes on.
    tolerates = frozenset({"join-impossible"})

    def compile(
        self,
        document: Document,
        root: Fields,
        options: Options,  # noqa: ARG002 - the port's signature
    ) -> tuple[Net | None, Sequence[Problem]]:
        return compile_orchestration(document, root)
