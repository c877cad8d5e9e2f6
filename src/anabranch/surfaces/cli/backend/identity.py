"""Who asks: the name that is recorded, and the token that a server wants."""

from __future__ import annotations

import argparse
import getpass
from pathlib import Path

from anabranch.errors import InputError
from anabranch.settings import Settings


def who(options: argparse.Namespace) -> str:
    """Who is recorded as the one that did it."""
    if getattr(options, "actor", ""):
        return str(options.actor)
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no such user in a bare container
        return "somebody"


def token_of(settings: Settings) -> str:
    """From the environment, or from a file: a command line can be read by everybody here."""
    if settings.token:
        return settings.token.strip()
    if not settings.token_file:
        return ""
    try:
        return Path(settings.token_file).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise InputError(
            f"the token cannot be read from {settings.token_file}: {reason}", code="usage"
        ) from None
