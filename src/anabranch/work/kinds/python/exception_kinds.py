"""Kinds of error by exception: what a retry can do about each.

    kind              may heal   exceptions
    timeout           yes        TimeoutError, and classes called Timeout…, …Timeout
    connection        yes        ConnectionError, unreachable hosts and names, and classes of
                                 libraries called ConnectionError, ConnectError, NetworkError …
    resource          yes        MemoryError; no memory, files, space or processes left
    not_found         no         FileNotFoundError
    storage_access    no         PermissionError
    config            no         ImportError
    schema            no         ValueError, TypeError, KeyError
    python            yes        everything else

Classes of libraries are told by their names, those of their bases included: the libraries need not
be there. Only the standard library is used, for the Python worker process loads this file.
"""

from __future__ import annotations

import errno

_SPENT = frozenset(
    {errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EDQUOT, errno.EAGAIN}
)
_UNREACHABLE = frozenset({errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN})
_TIMEOUTS = frozenset({"Timeout", "TimeoutExpired", "TimeoutException", "TimeoutError"})
_CONNECTIONS = frozenset(
    {"ConnectionError", "ConnectError", "NetworkError", "ClientConnectionError", "URLError"}
    | {"gaierror", "herror", "RemoteDisconnected", "IncompleteRead"}
)


def kind_of(error: BaseException) -> tuple[str, bool]:
    """The kind, and whether trying again may help."""
    names = {kind.__name__ for kind in type(error).__mro__}
    number = error.errno if isinstance(error, OSError) else None
    if names & _TIMEOUTS:
        return "timeout", True
    if isinstance(error, MemoryError) or number in _SPENT:
        return "resource", True
    if isinstance(error, ConnectionError) or names & _CONNECTIONS or number in _UNREACHABLE:
        return "connection", True
    if isinstance(error, FileNotFoundError):
        return "not_found", False
    if isinstance(error, PermissionError):
        return "storage_access", False
    if isinstance(error, ImportError):
        return "config", False
    if isinstance(error, ValueError | TypeError | KeyError):
        return "schema", False
    return "python", True
