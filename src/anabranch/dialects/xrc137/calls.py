"""`contractReads` and `apiCalls` of a rule document."""

from __future__ import annotations

import re

from anabranch.dialects.findings import Section
from anabranch.dialects.nodes import Fields, Node, Scalar
from anabranch.dialects.xrc137 import limits
from anabranch.dialects.xrc137.document import ApiCall, ContractRead, Extract, ReadSlot
from anabranch.dialects.xrc137.parts import PartsReader
from anabranch.expressions.placeholders import PlaceholderText

METHODS = ("GET", "POST", "PUT", "PATCH")
_SIGNATURE = re.compile(r"\s*[A-Za-z_$][A-Za-z0-9_$]*\s*\(.*\)\s*", re.DOTALL)
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class CallReader:
    """Reads both lists in order; what one entry saves the later ones can name."""

    def __init__(self, parts: PartsReader) -> None:
        self._parts = parts
        self._findings = parts.findings
        self._read_keys: set[str] = set()
        self._names: set[str] = set()
        self._aliases: set[str] = set()

    # -- reads -------------------------------------------------------------------------------

    def read(self, node: Node, what: str) -> ContractRead | None:
        section = self._findings.section(node, what)
        if section is None:
            return None
        to = section.needed("to", "give the address of a contract")
        function = self.function(section)
        args = self._parts.items(section, "args", limits.READ_ARGS, self._parts.typed_value)
        slots = self._slots(section)
        rpc = self._parts.string(section, "rpc")
        section.finish()
        if to is None or not function:
            return None
        value = self._parts.value(to, f"`to` of {what}")
        self._parts.filled_in_later(to, section)
        self._parts.known |= {slot.key for slot in slots}
        return ContractRead(value, function, args, slots, str(rpc.value) if rpc else None)

    def function(self, section: Section, *, required: bool = True) -> str:
        hint = "write it as name(types), such as balanceOf(address)(uint256)"
        node = self._parts.string(section, "function", required=hint if required else "")
        if node is None:
            return ""
        text = str(node.value)
        if not _SIGNATURE.fullmatch(text) and (required or text):
            message = f"`function` of {section.what} is no signature"
            self._findings.add(node.position, "bad-value", message, hint)
        return text

    def _slots(self, section: Section) -> tuple[ReadSlot, ...]:
        saves = self._parts.section(section, "saveAs", limits.SAVES)
        if saves is None:
            if "saveAs" not in section:  # the call is made, and what it returns is not looked at
                message = f"{section.what} has no `saveAs`: the answer of the call is not stored"
                hint = 'say where a value goes: {"0": {"key": …, "type": …}}'
                self._findings.add(section.position, "nothing-saved", message, hint, "note")
            return ()
        found = [self._slot(index, node, saves) for index, node in saves.node.fields.items()]
        return tuple(sorted((slot for slot in found if slot is not None), key=lambda s: s.index))

    def _slot(self, index: str, node: Node, saves: Section) -> ReadSlot | None:
        at = saves.key_position(index)
        if not (index.isascii() and index.isdecimal() and len(index) <= 3):
            message = f"{index!r} in {saves.what} is no position of a returned value"
            self._findings.add(at, "bad-key", message, 'count from "0"')
            return None
        section = self._findings.section(node, f"{saves.what}[{index}]")
        if section is None:
            return None
        key = self._parts.string(section, "key", required="name what is saved")
        type_name = self._parts.type_of(section)
        default = self._parts.default(section, type_name)
        section.finish()
        if key is None or not type_name:
            return None
        name = str(key.value)
        good = self._parts.name(name, key.position, "a saved value")
        if not good or not self._parts.once(name, self._read_keys, key.position, "the key"):
            return None
        self._read_keys.add(name)
        return ReadSlot(int(index), name, type_name, default)

    # -- calls -------------------------------------------------------------------------------

    def call(self, node: Node, what: str) -> ApiCall | None:
        section = self._findings.section(node, what)
        if section is None:
            return None
        name = self._name(section)
        method = self._method(section)
        url = self._text(section, "urlTemplate", limits.URL, "write the address of the call")
        self._content_type(section)
        headers = self._headers(section)
        body = self._text(section, "bodyTemplate", limits.BODY)
        given = "timeoutMs" in section
        timeout = section.whole("timeoutMs", 1, least=1, most=limits.TIMEOUT_MS)
        extracts = self._extracts(section)
        section.finish()
        if not name or url is None:
            return None
        return ApiCall(name, method, url, headers, body, timeout if given else None, extracts)

    def _name(self, section: Section) -> str:
        node = self._parts.string(section, "name", required="give the call a name")
        if node is None:
            return ""
        name = str(node.value)
        if not self._parts.name(name, node.position, "a call"):
            return ""
        self._parts.once(name, self._names, node.position, "a call named")
        self._names.add(name)
        return name

    def _method(self, section: Section) -> str:
        node = section.needed("method", "choose one of " + ", ".join(METHODS))
        if node is None:
            return "GET"
        if isinstance(node, Scalar) and str(node.value).upper() in METHODS:
            return str(node.value).upper()
        return section.choice("method", METHODS, "GET")

    def _content_type(self, section: Section) -> None:
        section.require("contentType", 'write "json"')
        section.choice("contentType", ("json",), "json")

    def _text(
        self, section: Section, key: str, most: int, required: str = ""
    ) -> PlaceholderText | None:
        node = self._parts.string(section, key, required=required)
        if node is None:
            return None
        self._parts.length(node, f"`{key}` of {section.what}", most)
        return self._parts.template(node, f"`{key}` of {section.what}")

    def _headers(self, section: Section) -> dict[str, PlaceholderText]:
        headers = self._parts.section(section, "headers", limits.HEADERS)
        if headers is None:
            return {}
        found: dict[str, PlaceholderText] = {}
        for name in headers.node.fields:
            if not _HEADER.fullmatch(name):
                message = f"{name[:60]!r} cannot be the name of a header"
                headers.report(name, "bad-name", message, "rename it")
                continue
            template = self._text(headers, name, limits.TEXT)
            if template is not None:
                found[name] = template
        return found

    # -- extracts ----------------------------------------------------------------------------

    def _extracts(self, section: Section) -> tuple[Extract, ...]:
        wanted = self._parts.section(section, "extractMap", limits.EXTRACTS)
        if wanted is None:
            section.require("extractMap", "say what is taken from the answer")
            return ()
        found = []
        for alias, node in wanted.node.fields.items():
            extract = self._extract(alias, node, wanted)
            if extract is not None:
                found.append(extract)
                self._parts.known.add(alias)  # the next ones may use it
        return tuple(found)

    def _extract(self, alias: str, node: Node, wanted: Section) -> Extract | None:
        at = wanted.key_position(alias)
        what = f"{wanted.what}.{alias[:64]}"
        good = self._parts.name(alias, at, "an extract")
        if not good or not self._parts.once(alias, self._aliases, at, "an extract named"):
            return None
        self._aliases.add(alias)
        if not isinstance(node, Fields):
            return self._bare_extract(alias, node, what)
        section = Section(node, what, self._findings)
        type_name = self._parts.type_of(section)
        given = self._parts.value_or_expr(section)
        default = self._parts.default(section, type_name)
        save = section.flag("save", True)
        section.finish()
        cel = None if given is None else self._parts.expression(given, what, also=("resp",))
        return (
            None if cel is None or not type_name else Extract(alias, type_name, cel, default, save)
        )

    def _bare_extract(self, alias: str, node: Node, what: str) -> Extract | None:
        cel = self._parts.expression(node, what, also=("resp",))
        if cel is None:
            return None
        hint = 'write {"type": …, "value": …}'
        self._parts.old(node.position, f"{what} as a bare text", hint)
        return Extract(alias, "", cel)
