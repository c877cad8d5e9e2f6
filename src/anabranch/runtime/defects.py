"""Which errors are meant for people, and what the log says of a run that is set aside."""

from __future__ import annotations

import logging

from anabranch.errors import AnabranchError, LawBroken, MissingRequirements

log = logging.getLogger("anabranch.engine")


def is_known(error: BaseException) -> bool:
    """Meant for people; anything else is a defect of ours and shown as it is."""
    return isinstance(error, AnabranchError) and not isinstance(error, LawBroken)


def log_defect(run: str, defect: BaseException) -> None:
    if isinstance(defect, MissingRequirements):
        log.warning("%s", defect)
    elif is_known(defect):
        log.error("run %s set aside: %s", run, defect)
    else:
        log.error("run %s set aside: internal error", run, exc_info=defect)
