"""Arca workflow definitions: solicit many, choose in time, decide fulfilment.

`spelling.py` brings the three ways to write a plan into one form, `plan.py` reads the whole and
makes the net, `steps.py` one step with the help of `targets.py`, `orders.py`, `timing.py` and
`fulfilment.py`; `requests.py` is what a step sends.
"""
