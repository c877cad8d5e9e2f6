"""Orders that the operator places without a module: from an offer to a request on its way.

What an order may be is decided by `orders`, and how it travels by `delivery`.
"""
