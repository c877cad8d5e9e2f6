"""From what a test hands in to a net."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from anabranch.net.net import Net
from anabranch.operations.definitions.prepare import Rules, prepare
from anabranch.work.kinds.callables import default_toolbox

#: A path, the text of a definition (YAML or JSON), the same as a mapping, or a compiled net.
Definition = str | os.PathLike[str] | Mapping[str, Any] | Net


def compiled(definition: Definition, tools: Iterable[str] = (), rules: Rules | None = None) -> Net:
    """The net; `DefinitionError` with everything that is wrong with the definition.

    Tools registered with `@anabranch.tool` are known; `tools` names further ones, for a definition
    whose tools are scripted and therefore need not be imported.
    """
    if isinstance(definition, Net):
        return definition
    known = {tool.name for tool in default_toolbox} | set(tools)
    return prepare(definition, known, rules).net
