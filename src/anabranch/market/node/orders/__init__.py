"""Orders that this node places: from the draft of a module to the receipt.

`ingress` says whether an order may be opened, `machine` what can happen to its execution,
`procurement` writes contract and receipt, `results` admits what providers send.
"""
