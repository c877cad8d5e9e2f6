"""What can go wrong between us and a chain, one class for each thing to do about it.

    ChainError
    ├── NodeUnreachable      nothing came back, or not HTTP we can use: try again later
    ├── WrongChain           the node belongs to another chain than the session
    ├── NodeMisbehaved       an answer that is not JSON-RPC, or of another call, or too large
    ├── NodeRefused          the node answered with an error of its own
    │   └── Reverted         the contract refused; `reason` is what it said
    ├── BadAddress           the text is no address
    ├── NoContract           nothing is deployed at the address
    ├── NotARegistry         a contract, but no XRC-729 registry
    ├── UnknownOrchestration the registry does not have this id
    ├── BadAnswer            the contract's answer cannot be decoded
    ├── DocumentTooLarge     longer than an orchestration or a rule may be
    ├── BadDocument          not UTF-8, or not the JSON it should be
    ├── HashMismatch         another text than the one that was asked for
    ├── BadRules             rules that cannot be used, all of them
    ├── NotAllowed           the starter is neither owner nor executor
    └── SignerUnavailable    no package, no key, or a key that is none

`code` is for machines and stays stable, `hint` says what to do, `retryable` whether waiting helps.
No message holds the address of a node: it may contain a password or an API key.
"""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.errors import AnabranchError
from anabranch.net.problems import Problem


class ChainError(AnabranchError):
    code = "chain"
    hint = ""
    retryable = False

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        if hint is not None:
            self.hint = hint
        self.what = message  # without the hint
        super().__init__(f"{message}; {self.hint}" if self.hint else message)


class NodeUnreachable(ChainError):
    code = "chain_unreachable"
    hint = "it may work again in a moment"
    retryable = True


class WrongChain(ChainError):
    code = "wrong_chain"
    hint = "name a node of that chain (setting chain_url)"
    retryable = True


class NodeMisbehaved(ChainError):
    code = "chain_bad_response"
    hint = "check that the URL is that of a JSON-RPC endpoint"


class NodeRefused(ChainError):
    """An error object of JSON-RPC that is no revert."""

    code = "chain_refused"

    def __init__(
        self,
        message: str,
        *,
        number: int = 0,
        said: str = "",
        data: object = None,
        retryable: bool = False,
    ) -> None:
        super().__init__(message)
        self.number = number  # the code of the error object
        self.said = said  # its message
        self.data = data
        self.retryable = retryable


class Reverted(NodeRefused):
    code = "reverted"

    def __init__(self, message: str, *, reason: str = "", number: int = 0) -> None:
        super().__init__(message, number=number)
        self.reason = reason  # "" when the contract gave none


class BadAddress(ChainError):
    code = "bad_address"
    hint = "an address is 0x and 40 hexadecimal digits"


class NoContract(ChainError):
    code = "no_contract"
    hint = "check the address and that the endpoint is on the right chain"


class NotARegistry(ChainError):
    code = "not_a_registry"
    hint = "give the address of an XRC-729 registry"


class UnknownOrchestration(ChainError):
    code = "unknown_ostc"
    hint = "check the id; getAllOSTC() lists the ids of a registry"


class BadAnswer(ChainError):
    code = "bad_answer"
    hint = "the contract does not implement the function as expected"


class DocumentTooLarge(ChainError):
    code = "document_too_large"
    hint = "split the document"


class BadDocument(ChainError):
    code = "bad_document"
    hint = "the owner of the contract has to store a corrected text"


class HashMismatch(ChainError):
    code = "hash_mismatch"
    hint = "look at what has changed, then pin the new hash or none"


class BadRules(ChainError):
    """Rules that cannot be used; `problems` names each of them."""

    code = "bad_rules"

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class NotAllowed(ChainError):
    code = "not_allowed"
    hint = "ask the owner to add you as an executor"


class SignerUnavailable(ChainError):
    code = "no_signer"
