"""The command was right, and the node could not do it: exit code 1, where bad usage has 2."""

from __future__ import annotations

from anabranch.errors import AnabranchError


class NodeFailed(AnabranchError):
    """The node does not run, does not answer, or failed to do what it was asked for."""

    code = "node_away"
