"""How requests are read and answers are written: bodies within bounds, problem documents, the types
of the API.

No handler and no guard lives here.
"""
