"""The parts of test plans: their documents read, a stage to play them on, and the judge.

`testing/plans.py` plays them.
"""
