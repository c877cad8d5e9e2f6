"""The behaviour every store must show, by topic; `StoreSuite` has all of it.

It uses the ports of stores and nothing behind them.
"""
