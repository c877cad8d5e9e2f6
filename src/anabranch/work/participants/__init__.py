"""Participants: those a workflow asks, behind one narrow port.

`port.py` says what asking is, `http.py` and `functions.py` are two ways to reach somebody,
`book.py` knows who is reached how, and `performers.py` are the kinds of work that use them.
"""
