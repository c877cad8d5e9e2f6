"""The way from work to servers over HTTP, for workers and for processes of a compute cluster.

Calls, which server to ask, and what jobs need while they are done. What a worker asks for itself
(claims, heartbeats) is in `surfaces/worker`.
"""
