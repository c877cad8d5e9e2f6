"""The hostile side of a simulation: faults, unreliable workers and people, crashes, and the audit
of what was committed.

`simulate` itself is in `testing/simulate.py`.
"""
