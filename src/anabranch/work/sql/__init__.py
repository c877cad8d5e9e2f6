"""The kinds `sqlite`, `postgres` and `duckdb`: SQL commands in one transaction.

Where a loop takes its items from rows is in `work/loops/collections`; it comes here to read them.

text.py       a script → statements
task.py       the inputs of a task → what is to be run
rows.py       rows → JSON, within limits; the result
named_files.py  which files SQL may lead to (globs.py, whole_folders.py)
blocking.py   databases that block: a thread that can be told to stop
sqlite.py  postgres.py (pool.py)
duckdb.py     asks a process (duckdb_channel.py), which does it (duckdb_process.py,
              duckdb_session.py, duckdb_files.py)
"""
