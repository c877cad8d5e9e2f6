"""The kind `nats`, and the small client it speaks with.

Object stores and logins by key are not part of it.
"""
