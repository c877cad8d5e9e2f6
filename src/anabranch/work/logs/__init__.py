"""What work prints: heard where it is printed, cleaned, bounded, and handed on in batches.

Who writes the batches (the engine) or sends them (a worker) is said elsewhere.
"""
