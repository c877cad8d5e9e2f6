"""XRC-729 orchestrations: steps with a valid and an invalid branch, spawns and scoped joins.

`read.py` takes a document apart, `bundle.py` knows how it travels together with its rules,
`compile.py` checks those and puts it together, `lower.py` makes the net.
"""
