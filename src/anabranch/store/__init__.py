"""The log of every run and its indexes: the ports, memory, SQLite, PostgreSQL.

A store keeps what it is given in one transaction and knows nothing of what the events mean.
"""
