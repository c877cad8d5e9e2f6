"""What SQLite, which runs inside the engine, may do for the authors of statements.

Closed lists, and who looks at them. Nothing here opens a database.
"""
