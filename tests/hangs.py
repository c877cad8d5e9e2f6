"""How long a test waits for what must happen before it takes it for a hang.

A busy machine makes everything late, so this is no measure of anything: what must be quick is a
benchmark.
"""

HANG_SECONDS = 900.0

# Time limits for work that must end within one, tried in this order: the first is enough on a quiet
# machine, and what fails with all of them does not fail for want of time. A test says
# `assert any(trial(limit) for limit in PATIENCE)`.
PATIENCE = (0.5, 2.0, 8.0, 32.0, 128.0)
