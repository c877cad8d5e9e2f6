"""`anabranch arca`: the module that a node launches, and its runs at a node that hosts it.

What a run does is decided by the module; nothing here knows an order from an offer.
"""
