"""The stories of the marketplace, played by real nodes on this machine.

A story makes the folders of its nodes, starts them as processes, lets a workflow run, tells what it
sees through their HTTP APIs, and checks the laws when they have stopped. It may kill a process at
any arrow and let it come back.

plan        which nodes there are, what they offer, and what follows from the variant
processes   a node as a process: start, ask, kill, stop
held_node   `node serve` that waits at an arrow, so that a process can be killed exactly there
arrows      where each arrow of a story becomes durable
trail       what happened in a run, read from the APIs of its nodes
laws        what must hold at the end
"""
