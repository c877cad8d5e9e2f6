"""XRC-137 rule documents: read, typed and priced; `work/rule` carries them out.

`read.py` is the way in; `calls.py` and `branches.py` read the larger parts, `document.py` is the
result, `casts.py` has the types, `gas.py` the billing model.
"""
