"""What a job can be: the kinds of work, pipelines, loops, secrets, and the port they stand behind.

Work gets a task and gives an answer; it sees no engine, no store and no state of a run.
"""
