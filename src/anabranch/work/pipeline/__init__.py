"""The tasks of one step in order, with the rules for what follows each, on one worker.

It knows the program of a step and nothing of the net around it.
"""
