"""XRC-729 orchestrations: steps with a valid and an invalid branch, spawns and scoped joins.

`read.py` takes a document apart, `bundle.py` knows how it travels together with its rules,
`rules.py` checks those, `lower.py` makes the net, `compile.py` puts it together, `dialect.py` is
what the registry loads.
"""
