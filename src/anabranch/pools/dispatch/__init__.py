"""The parts of a dispatcher: its tickets, what it says of them, how it stops them, when it pauses.

Each part knows nothing of the others but what it is given; `pools.dispatcher` puts them together.
"""
