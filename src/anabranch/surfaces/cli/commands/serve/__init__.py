"""`serve`, `dev`, `worker`, `workers`, `pools` and `token`: servers, who works for them, who may
call them.

The server itself is `surfaces/http`.
"""
