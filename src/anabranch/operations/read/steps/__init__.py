"""One step of a run: its runs and attempts, what each was given, what it gave, its lines.

Only what the log and the definition say is put together here. Nothing here changes a run.
"""
