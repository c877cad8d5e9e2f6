"""The verbs of triggers. Each changes one record in the version that was read, so it does not
matter which process it comes from, or whether an engine is at work on the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, get_args

import msgspec
from msgspec.structs import replace

from anabranch.clock import Clock
from anabranch.dialects.durations import parse_duration
from anabranch.errors import Conflict, InputError, Refused
from anabranch.net.net import Net
from anabranch.operations.definitions.catalog import wanted
from anabranch.operations.definitions.input_check import require_input, require_no_secret
from anabranch.operations.definitions.prepare import Prepared
from anabranch.operations.read.reader import Reader
from anabranch.operations.runs.signals import signal
from anabranch.operations.schedules.schedule import Target
from anabranch.operations.triggers.chains import (
    BEGUN,
    LEFT_OUT,
    finished_at,
    hook_of,
    keep_hook,
    names_after,
    run_after,
    takes,
)
from anabranch.operations.triggers.firing import runs_meant
from anabranch.operations.triggers.rendering import (
    Rendered,
    key_of,
    names_made_later,
    rendered,
    require_readable,
)
from anabranch.operations.triggers.signatures import header_of
from anabranch.operations.triggers.trigger import (
    DAY_SECONDS,
    FAMILY,
    KEY,
    LABEL,
    REMEMBER_MOST,
    REMEMBER_SECONDS,
    TRIGGERS,
    WINDOW_MOST,
    WINDOW_SECONDS,
    AfterRules,
    Auth,
    Ending,
    HookRules,
    Scheme,
    SignalRules,
    Trigger,
    record_of,
)
from anabranch.store.hook_ports import Backlog, DeliveryFilter, WebhookDelivery
from anabranch.store.ports import HeadFilter, Store
from anabranch.store.record_ports import NamedRecord
from anabranch.work.secrets.credential_sources import is_name

LAST_SHOWN = 10
PAGE_MOST = 500
RETRIED_MOST = 100_000
TRIGGERS_MAX = 1000
HEADER_LETTERS = 100
SENDERS_MAX = 100
ENDINGS_MAX = 20  # more than there are


class HookDraft(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Fired by POST /hooks/NAME: signed with the secret of a credential, or sent with a token."""

    auth: Auth = "signature"
    credential: str = ""  # the name of that which has the secret
    field: str = ""  # of the credential, where it has several
    scheme: Scheme = "anabranch"
    header: str = ""  # that has the signature, instead of the one of the scheme
    window: str | int | float | None = None  # how old a signed call may be (5m)
    remember: str | int | float | None = None  # how long calls of the scheme github are kept (90d)
    #: Names of tokens that may call.
    senders: Annotated[list[str], msgspec.Meta(max_length=SENDERS_MAX)] = []
    key: str | None = None  # template; two calls with the same text are one


class AfterDraft(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Fired by runs that have finished."""

    definition: str = ""  # its name; without one any
    statuses: Annotated[list[Ending], msgspec.Meta(max_length=ENDINGS_MAX)] = msgspec.field(
        default_factory=lambda: ["completed"]
    )
    labels: dict[str, str] = {}


class SignalDraft(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A signal instead of a new run."""

    name: str
    run: str = ""  # its id, or a template that makes it
    labels: dict[str, str] = {}  # of the unfinished runs it goes to; templates
    ttl: str = ""


class TriggerDraft(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A trigger to add: what fires it (`hook` or `after`), and what it starts or signals."""

    name: str
    hook: HookDraft | None = None
    after: AfterDraft | None = None
    path: str | None = None  # of the catalog, or an alias
    version: int | None = None  # of the path, instead of the newest
    fingerprint: str | None = None  # of a stored definition
    definition: str | dict[str, Any] | None = None  # its text or JSON; it is stored
    file: str = "<text>"  # what the file of the definition is called; none is read
    signal: SignalDraft | None = None
    input: dict[str, Any] | None = None  # templates; without it the body of the call
    labels: dict[str, str] = {}
    when: str = ""
    paused: bool = False
    replace: bool = False  # in the place of one of this name


class Firing(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a finished run, or a run that a call has begun."""

    at: int
    outcome: str  # started, signalled, left_out, pending or refused
    run: str = ""  # that was begun
    after: str = ""  # the run that had finished
    why: str = ""


class TriggerCard(msgspec.Struct, frozen=True, kw_only=True):
    """A trigger as people and programs see it."""

    name: str
    kind: str  # hook or after
    state: str  # on or paused
    url: str  # where a hook is called
    hook: HookRules | None
    after: AfterRules | None
    target: Target | None
    signal: SignalRules | None
    input: dict[str, Any] | None
    labels: dict[str, str]
    when: str
    pending: int  # finished runs that it has yet to act on
    refused: int  # those that were refused; `retry` tries them again
    last: list[Firing]
    paused_at: int | None
    paused_by: str
    created_at: int
    created_by: str
    version: int


class TriggerRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A call to try a hook with, or the finished run to try a chain with."""

    body: Any = None
    headers: dict[str, str] = {}
    query: dict[str, str] = {}
    run: str = ""


class TriggerPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a trigger would do; nothing was done."""

    trigger: str
    fires: bool
    why: str  # it does not
    target: Target | None
    fingerprint: str  # of the definition that would run
    input: Any
    labels: dict[str, str]
    signal: str  # its name
    runs: list[str]  # that would be signalled
    key: str


class TriggerReport(msgspec.Struct, frozen=True, kw_only=True):
    count: int


#: The definition of a target; raises where there is none.
Find = Callable[[Target], Net]


class Triggers:
    def __init__(self, store: Store, clock: Clock, find: Find, read: Reader) -> None:
        self._store = store
        self._clock = clock
        self._find = find
        self._read = read
        self.changed: Callable[[], None] = lambda: None  # tells the dispatcher of this process

    # -- looking -----------------------------------------------------------------------------

    def page(self, after: str = "", limit: int = 50) -> list[TriggerCard]:
        """In the order of their names."""
        backlog = self._store.backlog()
        return [
            self._card(record, backlog, last=0)
            for record in self._store.records(FAMILY, after, limit)
        ]

    def all(self) -> Iterable[TriggerCard]:
        after = ""
        while found := self.page(after, PAGE_MOST):
            yield from found
            after = found[-1].name

    def show(self, name: str, last: int = LAST_SHOWN) -> TriggerCard:
        return self._card(TRIGGERS.record(self._store, name), self._store.backlog(), last=last)

    def get(self, name: str) -> Trigger:
        return TRIGGERS.document(TRIGGERS.record(self._store, name))

    def _card(
        self, record: NamedRecord, backlog: Mapping[str, Backlog], *, last: int
    ) -> TriggerCard:
        trigger = TRIGGERS.document(record)
        stands = backlog.get(hook_of(trigger.name), Backlog())
        return TriggerCard(
            name=trigger.name,
            kind=trigger.kind,
            state="on" if trigger.paused_at is None else "paused",
            url=f"/hooks/{trigger.name}" if trigger.hook is not None else "",
            hook=trigger.hook,
            after=trigger.after,
            target=trigger.target,
            signal=trigger.signal,
            input=trigger.input,
            labels=trigger.labels,
            when=trigger.when,
            pending=stands.pending,
            refused=stands.dead,
            last=self._last(trigger, last) if last else [],
            paused_at=trigger.paused_at,
            paused_by=trigger.paused_by,
            created_at=trigger.created_at,
            created_by=trigger.created_by,
            version=record.version,
        )

    def _last(self, trigger: Trigger, limit: int) -> list[Firing]:
        if trigger.after is not None:
            asked = DeliveryFilter(hook=hook_of(trigger.name), limit=limit)
            return [_firing(trigger, one) for one in self._store.deliveries(asked)]
        found = self._store.heads(HeadFilter(labels={LABEL: trigger.name}, limit=limit))
        return [Firing(at=head.created_at, outcome="started", run=head.run) for head in found]

    # -- changing ----------------------------------------------------------------------------

    def add(
        self, draft: TriggerDraft, prepared: Prepared | None = None, actor: str = ""
    ) -> TriggerCard:
        """`prepared` is the definition of the draft, where it brings one. Everything is checked
        before anything is written."""
        now = self._clock.now()
        made = Trigger(
            name=TRIGGERS.checked_name(draft.name),
            hook=_hook_rules(draft),
            after=_after_rules(draft),
            target=_target(draft, prepared),
            signal=_signal_rules(draft),
            input=draft.input,
            labels=draft.labels,
            when=draft.when,
            created_at=now,
            created_by=actor,
            paused_at=now if draft.paused else None,
            paused_by=actor if draft.paused else "",
        )
        require_readable(made)
        if made.target is not None:
            net = prepared.net if prepared is not None else self._find(made.target)
            _require_startable(net, made)
            if made.target.fingerprint:
                made = replace(made, target=replace(made.target, name=net.name))
        if prepared is not None:
            self._store.put_definition(replace(prepared.definition, created_at=now))
        return self._put(made, now, over=draft.replace)

    def _put(self, made: Trigger, now: int, *, over: bool) -> TriggerCard:
        def make(known: Trigger | None) -> Trigger:
            if known is not None and not over:
                raise Conflict(
                    f"there is a trigger {made.name!r} already; nothing was changed. Give another "
                    "name, or replace it (--replace)",
                    code="trigger_exists",
                )
            if known is None and len(self._store.records(FAMILY, limit=TRIGGERS_MAX)) >= (
                TRIGGERS_MAX
            ):
                raise Refused(f"there are {TRIGGERS_MAX:,} triggers already", code="triggers_full")
            return made

        TRIGGERS.put(self._store, made.name, make, lambda one: record_of(one, now))
        return self._kept(made)

    def _kept(self, trigger: Trigger) -> TriggerCard:
        keep_hook(self._store, trigger)
        self.changed()
        return self.show(trigger.name)

    def pause(self, name: str, actor: str = "") -> TriggerCard:
        """A hook refuses calls from now on. What finishes is acted on after `resume`."""
        now = self._clock.now()
        return self._change(
            name,
            lambda one: one if one.paused_at else replace(one, paused_at=now, paused_by=actor),
        )

    def resume(self, name: str) -> TriggerCard:
        return self._change(name, lambda one: replace(one, paused_at=None, paused_by=""))

    def remove(self, name: str) -> TriggerCard:
        """With what it had yet to act on; the runs that it began stay."""
        card = TRIGGERS.drop(self._store, name, lambda _record: self.show(name))
        self._store.drop_hook(hook_of(name))
        self.changed()
        return card

    def retry(self, name: str) -> TriggerReport:
        """Act once more on the finished runs that were refused; how many."""
        trigger = self.get(name)
        if trigger.after is None:
            raise Refused(
                f"the trigger {name} is a hook: its caller was told, and calls again",
                code="trigger_kind",
            )
        now = self._clock.now()
        count = self._store.redeliver_dead(hook_of(name), now, RETRIED_MOST)
        self.changed()
        return TriggerReport(count=count)

    def _change(self, name: str, change: Callable[[Trigger], Trigger]) -> TriggerCard:
        def record(one: Trigger) -> NamedRecord:
            return record_of(one, self._clock.now())

        after = TRIGGERS.change(self._store, name, change, record)
        return self.show(name) if after is None else self._kept(after)

    # -- trying ------------------------------------------------------------------------------

    def test(self, name: str, call: TriggerRequest) -> TriggerPlan:
        """What it would do with this call or run. Signatures are not asked for."""
        trigger = self.get(name)
        if trigger.hook is not None:
            if call.run:
                raise InputError(
                    f"the trigger {name} is a hook: try it with a body, not with a run",
                    code="usage",
                )
            names = names_of_call(call.body, call.headers, call.query, trigger.hook)
            return self._tested(trigger, rendered(trigger, names), key_of(trigger, names))
        if not call.run:
            raise InputError(
                f"the trigger {name} follows finished runs: name one to try it with", code="usage"
            )
        head = self._read.find(call.run)
        if not takes(trigger, head):
            why = f"the run {head.run} ({head.name}, {head.status}) is none that fires it"
            return self._tested(trigger, Rendered(fires=False), "", why)
        names, _ = names_after(self._read, head.run)
        return self._tested(trigger, rendered(trigger, names), "")

    def _tested(self, trigger: Trigger, made: Rendered, key: str, why: str = "") -> TriggerPlan:
        fingerprint, runs = "", []
        if made.fires and trigger.target is not None:
            net = self._find(trigger.target)
            require_input(net, made.input)
            fingerprint = net.fingerprint
        if made.fires and trigger.signal is not None:
            runs = runs_meant(self._store, trigger, made)
        return TriggerPlan(
            trigger=trigger.name,
            fires=made.fires,
            why=why or ("" if made.fires else "`when` comes out false"),
            target=trigger.target,
            fingerprint=fingerprint,
            input=made.input,
            labels=made.labels,
            signal=trigger.signal.name if trigger.signal is not None else "",
            runs=runs,
            key=key,
        )


def names_of_call(
    body: Any, headers: Mapping[str, str], query: Mapping[str, str], rules: HookRules
) -> dict[str, Any]:
    """What templates can read of a call; what says who calls is not part of it."""
    hidden = {"authorization", "cookie", "proxy-authorization", header_of(rules).lower()}
    shown = {key.lower(): text for key, text in headers.items() if key.lower() not in hidden}
    return {"body": body, "headers": shown, "query": dict(query)}


# -- what is asked for, checked ------------------------------------------------------------------


def _hook_rules(draft: TriggerDraft) -> HookRules | None:
    given = draft.hook
    if (given is None) == (draft.after is None):
        raise InputError(
            "one thing fires a trigger: a call (`hook`), or finished runs (`after`)", code="usage"
        )
    if given is None:
        return None
    signed = given.auth == "signature"
    if signed and not is_name(given.credential):
        raise InputError(
            "say who may call the hook: the credential with the secret that calls are signed with "
            "(--credential, `anabranch credential add` keeps one), or callers with a token "
            "(--token)" if not given.credential else
            f"{given.credential[:60]!r} cannot be the name of a credential",
            code="trigger_credential",
        )  # fmt: skip
    if not signed and (given.credential or given.header or given.window is not None):
        raise InputError(
            "credential, header and window belong to a signed hook, not to one with a token",
            code="usage",
        )
    if given.remember is not None and not (signed and given.scheme == "github"):
        raise InputError(
            "`remember` belongs to the scheme github: every other signed call names its instant, "
            "and is too old after the window",
            code="usage",
        )
    if signed and given.senders:
        raise InputError("senders belong to a hook with a token", code="usage")
    if len(given.senders) > SENDERS_MAX:
        raise InputError(f"a hook has at most {SENDERS_MAX} senders", code="usage")
    return HookRules(
        auth=given.auth,
        credential=given.credential,
        field=given.field,
        scheme=given.scheme,
        header=_checked_header(given.header),
        window=_window(given.window),
        remember=_remember(given.remember),
        senders=tuple(given.senders),
        key=KEY if given.key is None else given.key,
    )


def _checked_header(name: str) -> str:
    plain = name.replace("-", "").replace("_", "")
    if name and not (len(name) <= HEADER_LETTERS and plain.isascii() and plain.isalnum()):
        raise InputError(f"{name[:60]!r} cannot be the name of a header", code="trigger_header")
    return name


def _window(given: str | float | None) -> int:
    if given is None:
        return WINDOW_SECONDS
    seconds = _seconds(given, "window")
    if not 1 <= seconds <= WINDOW_MOST:
        raise InputError(
            f"the window of a hook is 1 s to {WINDOW_MOST:,} s, not {seconds:,} s",
            code="trigger_window",
        )
    return seconds


def _remember(given: str | float | None) -> int:
    if given is None:
        return REMEMBER_SECONDS
    seconds = _seconds(given, "remember")
    if not DAY_SECONDS <= seconds <= REMEMBER_MOST:
        most = REMEMBER_MOST // DAY_SECONDS
        raise InputError(
            f"a hook remembers calls for 1 to {most:,} days, not for {seconds:,} s",
            code="trigger_remember",
        )
    return seconds


def _seconds(given: str | float, what: str) -> int:
    try:
        return parse_duration(given) // 1000
    except ValueError as error:
        raise InputError(f"the {what} of a hook: {error}", code=f"trigger_{what}") from None


def _after_rules(draft: TriggerDraft) -> AfterRules | None:
    given = draft.after
    if given is None:
        return None
    if not given.statuses:
        listed = ", ".join(get_args(Ending))
        raise InputError(f"a trigger after runs needs statuses: {listed}", code="usage")
    return AfterRules(
        definition=given.definition,
        statuses=tuple(dict.fromkeys(given.statuses)),
        labels=given.labels,
    )


def _signal_rules(draft: TriggerDraft) -> SignalRules | None:
    given = draft.signal
    if given is None:
        return None
    signal(given.name, None, ttl=given.ttl or None)  # or it says what is wrong
    if bool(given.run) == bool(given.labels):
        raise InputError(
            "a signal goes to one `run`, or to the unfinished runs with these `labels`",
            code="usage",
        )
    return SignalRules(name=given.name, run=given.run, labels=given.labels, ttl=given.ttl)


def _target(draft: TriggerDraft, prepared: Prepared | None) -> Target | None:
    given = [one for one in (draft.path, draft.fingerprint, draft.definition) if one]
    if len(given) + (draft.signal is not None) != 1:
        raise InputError(
            "a trigger does one thing: it starts a `path` of the catalog, a `fingerprint` or a "
            "`definition`, or sends a `signal`",
            code="usage",
        )
    if draft.version is not None and not draft.path:
        raise InputError("a version belongs to a path of the catalog", code="usage")
    if draft.signal is not None:
        if draft.labels:
            raise InputError("labels belong to runs that a trigger starts", code="usage")
        return None
    if prepared is not None:
        return Target(fingerprint=prepared.net.fingerprint)
    if draft.fingerprint:
        return Target(fingerprint=draft.fingerprint)
    asked = wanted(draft.path or "")
    if not asked.path:
        raise InputError("a trigger names a path of the catalog, not its number", code="usage")
    if None not in (asked.version, draft.version) and asked.version != draft.version:
        raise InputError("the path and `version` name different versions", code="usage")
    return Target(path=asked.path, version=asked.version or draft.version)


def _require_startable(net: Net, made: Trigger) -> None:
    """What every firing would be refused for is said now."""
    if made.input is not None:
        later = names_made_later(made.input)
        require_input(net, made.input, later=later)
        require_no_secret(net, made.input.keys() - later)
    after = made.after
    if after is None or not after.definition or after.definition != net.name:
        return
    if not made.when and not after.labels:
        raise InputError(
            f"the trigger would start {net.name!r} whenever {net.name!r} finishes, for ever: give "
            "it a condition (`when`), or labels that its runs do not have",
            code="trigger_loop",
        )
    if not made.when and all(made.labels.get(key) == text for key, text in after.labels.items()):
        raise InputError(
            f"the runs of the trigger have the labels that fire it, so {net.name!r} would start "
            "itself for ever: give it a condition (`when`), or other labels",
            code="trigger_loop",
        )


def _firing(trigger: Trigger, one: WebhookDelivery) -> Firing:
    if one.state == "pending":
        outcome = "pending"
    elif one.state == "dead":
        outcome = "refused"
    else:
        outcome = {BEGUN: "started", LEFT_OUT: "left_out"}.get(one.last_status or 0, "signalled")
    begun = ""
    if outcome == "started":
        begun = run_after(trigger.name, one.run, finished_at(one.body))
    return Firing(
        at=one.last_at or one.found_at, outcome=outcome, run=begun, after=one.run,
        why=one.last_error,
    )  # fmt: skip
