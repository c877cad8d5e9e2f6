"""Read models: what the log of a run says, put together for people and programs.

They need a store and no engine, change nothing, and every surface shows the same ones.
"""
