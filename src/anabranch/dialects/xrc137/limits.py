"""How large the parts of a rule document may be."""

from __future__ import annotations

import re
from typing import Final

DOCUMENT_BYTES: Final = 131_072
INPUTS: Final = 64
RULES: Final = 64
CALLS: Final = 16
URL: Final = 2048
BODY: Final = 8192
HEADERS: Final = 64
EXTRACTS: Final = 64
READS: Final = 16
SAVES: Final = 64
READ_ARGS: Final = 16
OUTCOME_KEYS: Final = 64
GRANTS: Final = 16
WAKE_UPS: Final = 16
EXECUTION_ARGS: Final = 16
TEXT: Final = 8192
TIMEOUT_MS: Final = 120_000
WAIT_SECONDS: Final = 315_360_000  # ten years
EXPIRE_DAYS: Final = 36_500

NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
#: Words of the expression language that cannot be names in it.
NO_NAMES: Final = frozenset({"true", "false", "null", "in"})
#: An address that is not known yet when a document is written.
LATER: Final = re.compile(r"\$\{addr:[A-Za-z0-9_.-]+\}")
