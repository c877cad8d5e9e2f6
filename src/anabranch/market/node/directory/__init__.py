"""Which nodes there are and what they may do: the seed directory and the cache of passports.

Questions are answered from the cache alone. Reaching a node is for `peers`; whom to trust with an
order is for `offers`.
"""
