"""The store in one SQLite file: its tables, its transactions, its locks and its copies.

Whoever else opens the file does it through here.
"""
