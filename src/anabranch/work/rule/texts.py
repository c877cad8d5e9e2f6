"""Rules as they are found: the text from the bundle or from a source, opened if it is encrypted,
read once and kept by its hash."""

from __future__ import annotations

from collections import OrderedDict
from functools import lru_cache
from typing import Final

import msgspec

from anabranch.dialects.xrc137.document import RuleDocument, RuleProgram
from anabranch.dialects.xrc137.gas import GasEstimate, estimate
from anabranch.dialects.xrc137.read import ENCRYPTED, read_rule
from anabranch.keccak import keccak256
from anabranch.work.rule.ports import Decryptor, RuleSource, RuleText, RuleUnavailable
from anabranch.work.rule.steps import HardError

DOCUMENTS_MAX: Final = 512
_PROBLEMS_SHOWN = 3


class FoundRule(msgspec.Struct, frozen=True):
    document: RuleDocument
    text: RuleText
    encrypted: bool


class RuleTexts:
    def __init__(self, rules: RuleSource | None, decryptor: Decryptor | None = None) -> None:
        self._rules = rules
        self._decryptor = decryptor
        self._documents: OrderedDict[str, RuleDocument] = OrderedDict()
        self._bills: OrderedDict[tuple[str, int, int], GasEstimate] = OrderedDict()

    async def text(self, program: RuleProgram) -> RuleText:
        """Raises `RuleUnavailable`."""
        if program.text is not None:
            return _from_bundle(program.text)
        if self._rules is None:
            raise RuleUnavailable(
                f"the rule {program.alias or program.address} is not in the bundle, and the engine "
                "has neither a folder of rules nor a chain to get it from"
            )
        return await self._rules.rule(program.address)

    async def document(self, program: RuleProgram, found: RuleText) -> FoundRule:
        """Raises `HardError` when it is no rule document, or one that cannot be opened."""
        encrypted = found.text.startswith(ENCRYPTED)
        document = self._documents.get(found.hash)
        if document is None:
            plain = await self._opened(program, found.text) if encrypted else found.text
            document = self._documents[found.hash] = _read(plain, program)
            if len(self._documents) > DOCUMENTS_MAX:
                self._documents.popitem(last=False)
        else:
            self._documents.move_to_end(found.hash)
        return FoundRule(document, found, encrypted)

    def bill(self, found: FoundRule, valid_spawns: int, invalid_spawns: int) -> GasEstimate:
        """What the rule may cost; worked out once."""
        key = (found.text.hash, valid_spawns, invalid_spawns)
        bill = self._bills.get(key)
        if bill is None:
            bill = self._bills[key] = estimate(
                found.document,
                valid_spawns=valid_spawns,
                invalid_spawns=invalid_spawns,
                encrypted=found.encrypted,
            )
            if len(self._bills) > DOCUMENTS_MAX:
                self._bills.popitem(last=False)
        return bill

    async def _opened(self, program: RuleProgram, text: str) -> str:
        if self._decryptor is None:
            name = f"the rule {program.address}".rstrip()
            message = f"{name} is encrypted and the engine has no key for it"
            raise HardError(message, code="encrypted_rule")
        return await self._decryptor.decrypt(program.address, text)


@lru_cache(maxsize=DOCUMENTS_MAX)
def _from_bundle(text: str) -> RuleText:
    """Hashing takes longer than evaluating, so the hash of a text is kept."""
    digest = keccak256(text.encode("utf-8", "surrogatepass")).hex()
    return RuleText(text, f"0x{digest}", "bundle")


def _read(text: str, program: RuleProgram) -> RuleDocument:
    name = program.alias or program.address or "<rule>"
    document, problems = read_rule(text, file=name)
    if document is not None:
        return document
    errors = [str(problem) for problem in problems if problem.severity == "error"]
    more = f" (and {len(errors) - _PROBLEMS_SHOWN} more)" if len(errors) > _PROBLEMS_SHOWN else ""
    raise HardError("\n".join(errors[:_PROBLEMS_SHOWN]) + more, code="schema")
