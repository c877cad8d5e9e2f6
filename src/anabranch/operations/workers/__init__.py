"""What workers elsewhere may ask and say: claims, leases, the data of their jobs, cancellations.

Every word of a worker is checked against its lease here before it reaches the engine.
"""
