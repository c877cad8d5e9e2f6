"""`onValid` and `onInvalid` of a rule document."""

from __future__ import annotations

from anabranch.dialects.findings import Section
from anabranch.dialects.nodes import Node, Scalar, plain
from anabranch.dialects.xrc137 import limits
from anabranch.dialects.xrc137.calls import CallReader
from anabranch.dialects.xrc137.casts import is_address
from anabranch.dialects.xrc137.document import Execution, Grant, RuleBranch, Wait, WakeUp
from anabranch.dialects.xrc137.parts import Parts, mapping_of
from anabranch.expressions.placeholders import Value, constant

READ, WRITE, MANAGE = 1, 2, 4


class BranchReader:
    def __init__(self, parts: Parts, calls: CallReader) -> None:
        self._parts = parts
        self._calls = calls
        self._findings = parts.findings

    def branch(self, section: Section) -> RuleBranch:
        payload = self._payload(section, limits.OUTCOME_KEYS)
        execution = self._execution(section)
        wait = self._wait(section)
        wake_ups = self._parts.items(section, "wakeUps", limits.WAKE_UPS, self._wake_up)
        grants = self._parts.items(section, "grants", limits.GRANTS, self._grant)
        given = "encryptLogs" in section
        encrypt = section.flag("encryptLogs")
        days = section.whole("logExpireDays", 365, least=1, most=limits.EXPIRE_DAYS)
        section.finish()
        return RuleBranch(
            payload, execution, wait, wake_ups, grants, encrypt if given else None, days
        )

    def _payload(self, section: Section, most: int) -> dict[str, Value]:
        found = self._parts.section(section, "payload")
        if found is None:
            return {}
        self._parts.limit(found.position, found.what, len(found.node.fields), most)
        return {
            key: self._parts.value(node, f"{found.what}.{key}")
            for key, node in found.node.fields.items()
            if self._parts.name(key, found.key_position(key), "an output")
        }

    # -- execution ---------------------------------------------------------------------------

    def _execution(self, section: Section) -> Execution | None:
        found = self._parts.section(section, "execution")
        if found is None:
            return None
        to = found.ask("to")
        function = self._calls.function(found, required=False)
        args = self._parts.items(found, "args", limits.EXECUTION_ARGS, self._parts.typed_value)
        value = found.ask("value")
        sent = None if value is None else self._parts.typed_value(value, f"`value` of {found.what}")
        gas_limit = self._gas_limit(found)
        extras = mapping_of(found.ask("extras"))
        found.finish()
        if to is None or (isinstance(to, Scalar) and to.value == ""):
            return None  # no call is made: the branch only speaks
        target = self._parts.value(to, f"`to` of {found.what}")
        self._check_fixed(target, to, found)
        return Execution(target, function, args, sent, gas_limit, extras)

    def _check_fixed(self, target: Value, node: Node, section: Section) -> None:
        """An address that depends on nothing can be checked now."""
        if not target.names and target.sort in ("literal", "text"):
            if is_address(target.evaluate({})) or self._parts.filled_in_later(node, section):
                return
            message = f"`to` of {section.what} is no address"
            hint = "write 0x and 40 hexadecimal digits, or a placeholder such as [Token]"
            self._findings.add(node.position, "bad-value", message, hint)

    def _gas_limit(self, section: Section) -> int | None:
        gas = self._parts.section(section, "gas")
        if gas is None:
            return None
        given = "limit" in gas
        limit = gas.whole("limit", 0, least=0, most=2**63 - 1)
        gas.finish()
        return limit if given and limit else None

    # -- the rest ----------------------------------------------------------------------------

    def _wait(self, section: Section) -> Wait | None:
        seconds, milliseconds = section.ask("waitSec"), section.ask("waitMs")
        until = section.ask("waitUntilMs")
        for key, node in (("waitMs", milliseconds), ("waitUntilMs", until)):
            if node is not None:
                self._parts.old(section.key_position(key), f"`{key}`", "write `waitSec`")
        if seconds is not None and milliseconds is not None:
            at = section.key_position("waitMs")
            message = f"{section.what} has both `waitSec` and `waitMs`"
            self._findings.add(at, "conflicting-keys", message, "keep `waitSec`")
        if until is not None:
            return Wait("until", self._number(until, section, "waitUntilMs", 2**63 - 1))
        if seconds is not None:
            most = limits.WAIT_SECONDS
            return Wait("seconds", self._number(seconds, section, "waitSec", most))
        if milliseconds is not None:
            most = limits.WAIT_SECONDS * 1000
            return Wait("milliseconds", self._number(milliseconds, section, "waitMs", most))
        return None

    def _number(self, node: Node, section: Section, key: str, most: int) -> Value:
        what = f"`{key}` of {section.what}"
        value = plain(node)
        if not isinstance(node, Scalar) or isinstance(value, bool | float):
            self._findings.wrong_type(node, what, "a whole number or an expression")
        elif isinstance(value, int) and not 0 <= value <= most:
            message = f"{what} is {value}"
            self._findings.add(node.position, "bad-number", message, f"write 0 to {most}")
        return self._parts.value(node, what)

    def _wake_up(self, node: Node, what: str) -> WakeUp | None:
        section = self._findings.section(node, what)
        if section is None:
            return None
        given: dict[str, Value] = {}
        hints = {
            "runner": "give the address of the session's owner",
            "sessionId": "name the session",
            "stepId": "name the step that sleeps",
        }
        for key, hint in hints.items():
            found = section.ask(key)
            if found is None:
                section.require(key, hint)
            else:
                given[key] = self._parts.value(found, f"`{key}` of {what}")
        payload = self._payload(section, limits.OUTCOME_KEYS)
        section.finish()
        if len(given) < len(hints):
            return None
        return WakeUp(given["runner"], given["sessionId"], given["stepId"], payload)

    def _grant(self, node: Node, what: str) -> Grant | None:
        section = self._findings.section(node, what)
        if section is None:
            return None
        address = section.ask("address")
        if address is None:
            section.require("address", "say who may read")
        rights = section.whole("rights", 0, least=READ, most=READ | WRITE | MANAGE)
        if "rights" not in section:
            section.require("rights", "add up READ 1, WRITE 2, MANAGE 4")
        days = self._days(section)
        section.finish()
        if address is None:
            return None
        value = self._parts.value(address, f"`address` of {what}")
        return Grant(value, rights, days)

    def _days(self, section: Section) -> Value | None:
        """A number of days, or a text that gives one: `"[Days]"`."""
        node = section.ask("expireDays")
        if node is None:
            return None
        if isinstance(node, Scalar) and isinstance(node.value, str):
            return self._parts.value(node, f"`expireDays` of {section.what}")
        return constant(section.whole("expireDays", 1, least=1, most=limits.EXPIRE_DAYS))
