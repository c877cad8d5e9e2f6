"""The world around one engine core in virtual time: its store, its clock, its queue and its post.

Both plays and simulations run in it.
"""
