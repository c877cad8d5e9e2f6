"""What reaches a run from outside its own turns: mail from other processes, wake-ups between runs,
and whoever follows it: until something is durable, it has ended, or it stands still.

It carries stimuli and never decides on them.
"""
