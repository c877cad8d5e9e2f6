"""The side of the cluster behind `worker_entry`: what a process is built from, once.

Its modules, its settings, what its jobs may ask for, and the loop in which they are done. Nothing
here is imported by the engine but `tools` and `settings`, which say what to send.
"""
