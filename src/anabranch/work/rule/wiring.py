"""The performer of rules, put together from the settings of an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.settings import Settings
from anabranch.work.network.addresses import read_policy
from anabranch.work.port import Performer

if TYPE_CHECKING:
    from anabranch.work.chain.wiring import ChainPorts
    from anabranch.work.rule.xgr1 import RuleKeys


def performer_of(settings: Settings, chain: ChainPorts | None, keys: RuleKeys | None) -> Performer:
    """Rules that are not bundled, reads and calls come from the chain, if there is one."""
    from anabranch.work.rule.api import ApiOptions
    from anabranch.work.rule.patience import Patience
    from anabranch.work.rule.performer import rule_performer

    http = ApiOptions(addresses=read_policy(settings.rule_addresses, "rule_addresses"))
    sealing = keys if keys is not None and keys.seals else None
    if chain is None:
        return rule_performer(http=http, decryptor=keys, encryptor=sealing)
    return rule_performer(
        rules=chain.rules,
        reader=chain.reader,
        executor=chain.executor,
        http=http,
        identity=chain.identity,
        patience=Patience(settings.chain_patience_seconds),
        decryptor=keys,
        encryptor=sealing,
    )
