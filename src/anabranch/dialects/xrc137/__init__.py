"""XRC-137 rule documents: read, typed and priced; `work/rule` carries them out.

`read.py` is the way in, with `calls.py` for what a rule asks of others; `document.py` is the
result, `casts.py` has the types, `gas.py` the billing model.
"""
