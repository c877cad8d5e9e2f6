"""`pause`, `cancel`, `patch`, `loop` and `decide`: what an operator says to a run.

Starting and redriving runs is in `run`.
"""
