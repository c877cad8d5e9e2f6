"""Modules that the node hosts: their processes and tokens, what they ask and what they are asked.

`part.py` puts it together. A module proposes; nothing it says about itself gives it a right, and
who it is comes from its token. Nothing in here signs, sends to peers or moves money.
"""
