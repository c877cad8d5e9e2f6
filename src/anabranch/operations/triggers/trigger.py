"""A trigger as the store keeps it: what fires it, and what it does then.

    hook     a call of POST /hooks/NAME, signed with a secret or sent with a token
    after    a run that has finished, by the name of its definition, its status and its labels

A trigger starts a run, or signals runs that are there. It has no secret: a credential is named that
is looked for when a call comes.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from anabranch.operations.record_families import RecordFamily
from anabranch.operations.schedules.schedule import Target
from anabranch.store.record_ports import NamedRecord

FAMILY = "trigger"
WINDOW_SECONDS = 300  # how old a signed call may be
WINDOW_MOST = 3600
DAY_SECONDS = 24 * 3600
#: How long a call is remembered whose signature names no instant, and so never becomes too old.
REMEMBER_SECONDS = 90 * DAY_SECONDS
REMEMBER_MOST = 3650 * DAY_SECONDS
KEY = "{{ headers['idempotency-key'] | default('') }}"

#: Labels of the runs of a trigger.
LABEL, LABEL_RUN = "trigger", "trigger_run"
OWN_LABELS = (LABEL, LABEL_RUN)

Scheme = Literal["anabranch", "github"]
Auth = Literal["signature", "token"]
Ending = Literal["completed", "partial", "failed", "cancelled", "deadline_exceeded", "step_timeout"]


class HookRules(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who may call it, and which calls are the same one."""

    auth: Auth
    credential: str = ""  # the name of that which has the secret
    field: str = ""  # of the credential, where it has several
    scheme: Scheme = "anabranch"
    header: str = ""  # that has the signature; "": the one of the scheme
    window: int = WINDOW_SECONDS  # seconds
    remember: int = REMEMBER_SECONDS  # of the scheme github
    senders: tuple[str, ...] = ()  # names of tokens that may call; empty: all with the scope
    key: str = KEY  # template; two calls with the same text are one


class AfterRules(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which finished runs fire it."""

    definition: str = ""  # its name; "": any
    statuses: tuple[Ending, ...] = ("completed",)
    labels: dict[str, str] = {}


class SignalRules(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is sent, and to which runs: one by its id, or the unfinished ones with these labels."""

    name: str
    run: str = ""  # template
    labels: dict[str, str] = {}  # templates
    ttl: str = ""


class Trigger(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    hook: HookRules | None = None
    after: AfterRules | None = None
    target: Target | None = None  # what it starts
    signal: SignalRules | None = None  # or sends
    input: dict[str, Any] | None = None  # templates; of a signal its payload. None: the body
    labels: dict[str, str] = {}  # templates
    when: str = ""  # template: fires only where it comes out true
    created_at: int = 0
    created_by: str = ""
    paused_at: int | None = None
    paused_by: str = ""

    @property
    def kind(self) -> Literal["hook", "after"]:
        return "hook" if self.hook is not None else "after"


def record_of(trigger: Trigger, now: int) -> NamedRecord:
    return NamedRecord(
        family=FAMILY, name=trigger.name, body=msgspec.json.encode(trigger), updated_at=now
    )


TRIGGERS = RecordFamily(FAMILY, Trigger, "the name of a trigger")
