"""Words of orchestrations that others need to know too. Light to load."""

from __future__ import annotations

from anabranch.net.net import OWNER as OWNER

DIALECT = "xrc729"
PRIVATE = "__"  # keys that travel with a process and are shown nowhere
SEALED = "__secret"  # input keys that never reach the log
RULE = "rule"  # the kind of work of every step

#: A label of a run that its rules see, like `OWNER`; `start` sets both.
BUDGET = "max_gas"
#: The number of the session among those of its owner; the engine sets it.
SESSION = "session"
