"""Kinds of error by exit status: what a retry can do about a command that failed.

The numbers are those of shells (126, 127, 128 and the signal), of `timeout(1)` (124) and of
`sysexits.h` (64 to 78). Every other one says only that the command failed.
"""

from __future__ import annotations

from collections.abc import Mapping

OTHER = ("shell", True)
#: The kind, and whether trying again may help.
KINDS: Mapping[int, tuple[str, bool]] = {
    64: ("config", False),  # used in a wrong way
    65: ("schema", False),  # the data is wrong
    66: ("not_found", False),  # no such input
    68: ("connection", True),  # no such host
    69: ("connection", True),  # a service is away
    71: ("resource", True),  # the system has no more of something
    73: ("storage_access", True),
    74: ("storage_access", True),
    75: ("resource", True),  # try again later
    77: ("auth", False),
    78: ("config", False),
    124: ("timeout", True),
    126: ("config", False),  # found, but it cannot be executed
    127: ("not_found", False),  # no such command
    137: ("resource", True),  # killed, by whoever was short of memory in most cases
}
KILLED = 9


def kind_of_exit(status: int, other: str = OTHER[0]) -> tuple[str, bool]:
    """Of an exit status; a signal that ended the shell itself is a number below zero."""
    return KINDS.get(128 + KILLED if status == -KILLED else status, (other, OTHER[1]))
