"""A page asks for one script, however many modules that is written in.

Modules that import modules are asked for one after the other: a page would wait for four answers
in a row, of eighteen in all. Here a module and everything that it imports become one text, each
module in a scope of its own, in the order in which a browser runs them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_IMPORT = re.compile(r'^import (?P<names>\{[^}]+\}) from "\./(?P<module>\w+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async function|function|class|const) (\w+))", re.MULTILINE)
_OTHER = re.compile(r"^(?:import|export)\b.*$", re.MULTILINE)


def bundle(modules: Mapping[str, str]) -> dict[str, str]:
    """By name, those that no other one imports, each with all that it needs."""
    imported = {found["module"] for text in modules.values() for found in _IMPORT.finditer(text)}
    return {name: _with_imports(name, modules) for name in modules if name not in imported}


def _with_imports(entry: str, modules: Mapping[str, str]) -> str:
    order: list[str] = []

    def visit(name: str) -> None:
        if name not in order:
            for found in _IMPORT.finditer(modules[name]):
                visit(found["module"])
            order.append(name)

    visit(entry)
    return "\n".join(_as_scope(name, modules[name]) for name in order)


def _as_scope(name: str, text: str) -> str:
    exported = _EXPORT.findall(text)
    inner = _EXPORT.sub("", _IMPORT.sub(r"const \g<names> = $\g<module>;", text))
    left = _OTHER.search(inner)
    if left is not None:
        raise ValueError(f"{name}.js has a line that cannot become part of one script: {left[0]}")
    return f"const ${name} = (() => {{\n{inner}\nreturn {{ {', '.join(exported)} }};\n}})();"
