"""`serve`, `dev`, `worker` and `token`: servers, their workers and who may call them.

The server itself is `surfaces/http`.
"""
