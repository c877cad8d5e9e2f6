"""Who may issue a passport that counts here.

Those on the list of this node may, for any node; and whoever runs a node may for that node, if the
two say so of each other: the participant names the node as its own in the passport, and the node
presents this passport in its advertisement; or the operator of this node says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from anabranch.market.node.directory.artifacts import CheckedPassport, identity_of
from anabranch.market.node.directory.settings import CapabilityPolicy, DirectorySettings
from anabranch.market.passports import LEDGER

Presented = frozenset[tuple[str, ...]]  # the passports that a node says with its own key it holds
NOTHING: Presented = frozenset()

#: Nobody may appoint itself to keep the accounts of others.
_DEFAULTS: Mapping[str, CapabilityPolicy] = {LEDGER: CapabilityPolicy(operator=False)}
_DEFAULT = CapabilityPolicy()


class IssuerPolicy:
    def __init__(self, settings: DirectorySettings) -> None:
        self._allowed = frozenset(settings.issuers)
        self._policies = {**_DEFAULTS, **settings.policies}
        self.bindings = dict(settings.bindings)

    def is_allowed(self, one: CheckedPassport, presented: Presented) -> bool:
        passport = one.passport
        policy = self._policies.get(passport.capability_id.partition("@")[0], _DEFAULT)
        if passport.issuer in self._allowed or passport.issuer in policy.issuers:
            return True
        return policy.operator and self.is_operator(one, presented)

    def vouches(self, one: CheckedPassport) -> bool:
        """Whether the operator of this node trusts the issuer: anyone else can issue passports for
        any number of nodes of their own."""
        passport = one.passport
        policy = self._policies.get(passport.capability_id.partition("@")[0], _DEFAULT)
        bound = self.bindings.get(passport.node_id)
        return passport.issuer in (*self._allowed, *policy.issuers, bound)

    def names(self, one: str) -> bool:
        """Whether the operator of this node has named this participant or node."""
        listed = (policy.issuers for policy in self._policies.values())
        return (
            one in self._allowed
            or one in self.bindings
            or one in self.bindings.values()
            or any(one in issuers for issuers in listed)
        )

    def is_operator(self, one: CheckedPassport, presented: Presented) -> bool:
        """Whether the issuer runs the node that the passport is for."""
        bound = self.bindings.get(one.passport.node_id)
        if bound is not None:
            return bound == one.passport.issuer
        return one.issued_on_its_node and identity_of(one.document) in presented

    def operators(
        self, held: Iterable[CheckedPassport], presented: Presented
    ) -> dict[str, list[str]]:
        """Who runs a node with these passports, and by the passports for which capabilities."""
        found: dict[str, list[str]] = {}
        for one in held:
            if self.is_operator(one, presented):
                found.setdefault(one.passport.issuer, []).append(one.passport.capability_id)
        return found

    def participant(self, one: CheckedPassport) -> str:
        """Who is asked where the node is: its operator, or else the issuer."""
        return self.bindings.get(one.passport.node_id, one.passport.issuer)
