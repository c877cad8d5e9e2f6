"""Which addresses a call may reach, and client sessions that keep to it.

Every kind of work that calls somebody does it through here.
"""
