"""Commands, scripts and containers: child processes that can really be stopped.

What they get of the engine's environment is decided here and nowhere else.
"""
