"""How a hosted run asks others: searches, fan-outs to peers, orders, decisions by capability.

Each is a performer of the engine; none opens a connection to anybody but the host.
"""
