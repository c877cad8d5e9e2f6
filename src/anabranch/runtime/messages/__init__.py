"""What reaches a run from outside its own turns: mail from other processes, wake-ups between runs,
and subscribers who wait for something durable.

It carries stimuli and never decides on them.
"""
