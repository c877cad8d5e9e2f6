"""Everything a request passes before its handler: limits, origins, tokens, idempotency, audit.

It knows requests and callers, and no resource.
"""
