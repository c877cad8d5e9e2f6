"""Random definitions, each fixed by its seed.

They know the languages, and no engine.
"""
