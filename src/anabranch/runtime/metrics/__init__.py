"""What an engine does, counted while it does it, and whether its event loop gets its turn.

Nothing here changes what an engine does.
"""
