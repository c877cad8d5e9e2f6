"""How long a test waits for what must happen before it takes it for a hang.

A busy machine makes everything late, so this is no measure of anything: what must be quick is a
benchmark.
"""

HANG_SECONDS = 900.0
