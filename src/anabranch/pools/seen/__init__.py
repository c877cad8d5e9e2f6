"""What people and programs see of the clusters of pools: places of jobs, cards, metrics, a probe.

Nothing here changes anything.
"""
