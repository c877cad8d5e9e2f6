"""EVM chains: reading orchestrations, rules and values, and sending the calls of rules.

    abi_types, abi   types, signatures, encoding and bounds-checked decoding
    rpc, nesting     JSON-RPC over HTTP
    contracts        one call of a contract, and what its failures mean
    documents        texts that contracts keep
    loader           an orchestration with its rules, at one block; as one text
    authority        who may start an orchestration
    evm              the ports of a rule, served by a chain
    executor, sent, signer   sending calls, once each
    wiring           from the settings to a chain

Reading needs no package beyond the engine's own. Signing needs `anabranch[evm]`.
"""
