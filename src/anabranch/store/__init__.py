"""The log of every run and its indexes: the ports of a store, its migrations, memory and SQLite.

A store keeps what it is given in one transaction and knows nothing of what the events mean.
"""
