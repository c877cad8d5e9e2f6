"""The store in a PostgreSQL database: its address, its connections, its schema and its partitions.

Many servers share one; what they own of it is checked inside every commit. Nothing here knows runs
but as rows.
"""
