"""The net: a compiled definition.

Every dialect is lowered to these few values and nothing below `dialects/` knows which one a run
came from. A net is immutable; it is never stored, only its source is, and the dialect compiles it
again (same source, same net). All durations are whole milliseconds.

A step is one path with most of its parts absent:

    token → admission → barrier | join → wake → work (or one job per fan-out slot) → decision
          → outcome → patches → the branch for that outcome → arcs and perhaps a join → tokens
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

import msgspec

from anabranch.expressions.port import Expression
from anabranch.literals import Reducer
from anabranch.net.inputs import Input
from anabranch.net.problems import Position


class GatherRule(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """How a gather closes, what it selects, how it combines and what becomes of the losers.

    Unlike the rest of a net it is recorded, once per gather, so that evolving needs no net.
    """

    mode: Literal["any", "quorum", "all", "best_of"] = "all"
    k: int = 1  # for quorum and best_of: how many usable deliveries are needed
    select: Literal["slot", "arrival", "score"] = "slot"
    order: Literal["asc", "desc"] = "desc"  # for score
    combine: Literal["one", "list", "merge", "counts"] = "list"
    losers: Literal["kill", "drain"] = "drain"
    #: How many slots may stay unfilled (failed, lost) before the gather is impossible.
    tolerate: int = 0
    tolerate_percent: float = 0.0
    #: Lost slots (unreachable parties) leave the denominator of `all` and lower a quorum.
    exclude_lost: bool = False
    #: What was delivered is enough when time is up, as long as there is something.
    partial_on_expiry: bool = False
    #: A gather over nothing is complete (an empty loop) rather than impossible (nobody to ask).
    empty_closes: bool = False


class Slot(msgspec.Struct, frozen=True):
    """One expectation of a join: who may fill it, with which outcome ("any" takes all)."""

    node: str
    when: str = "any"


class Join(msgspec.Struct, frozen=True):
    """Declared on a branch: a fresh scope whose members deliver to a fresh token at `target`."""

    target: str
    rule: GatherRule
    slots: tuple[Slot, ...]
    position: Position | None = None


class Arc(msgspec.Struct, frozen=True):
    target: str
    guard: Expression | None = None
    args: Expression | None = None
    position: Position | None = None
    #: Context writes made when the arc is taken, whatever the outcome of the step was.
    patches: tuple[Patch, ...] = ()
    after_failure: bool = True  # False: it is no way on for a step that failed


class Branch(msgspec.Struct, frozen=True):
    """What follows a step's outcome: the first branch whose `outcome` matches is taken."""

    outcome: str | None = None  # None matches every outcome
    mode: Literal["exclusive", "inclusive"] = "exclusive"
    arcs: tuple[Arc, ...] = ()
    join: Join | None = None
    #: Children inherit the payload of the finished token, overlaid with its result.
    carry_payload: bool = False


class AdmitRule(msgspec.Struct, frozen=True):
    guard: Expression | None  # None is the `else` rule
    allow: bool


class Admission(msgspec.Struct, frozen=True):
    rules: tuple[AdmitRule, ...]
    on_deny: Literal["pending", "discard", "skip"] = "pending"


class Retry(msgspec.Struct, frozen=True):
    """How often a job that failed is tried again, and when."""

    attempts: int = 1  # executions in all, the first included
    delay_ms: int = 0
    backoff: Literal["constant", "linear", "exponential"] = "constant"
    multiplier: float = 2.0
    delay_ms_max: int | None = None

    def delay_before(self, retry: int) -> int:
        """Milliseconds to wait before the retry with that number (the first one is 1)."""
        match self.backoff:
            case "constant":
                delay = float(self.delay_ms)
            case "linear":
                delay = float(self.delay_ms * retry)
            case "exponential":
                # The cap keeps the power finite; no wait is longer than about 30,000 years.
                delay = self.delay_ms * min(self.multiplier ** min(retry - 1, 50), 1e15)
        return int(min(delay, self.delay_ms_max if self.delay_ms_max is not None else 1e15))


class WaitRule(msgspec.Struct, frozen=True):
    """Which signals a task waits for."""

    event: str  # their name
    filter: Expression | None = None  # over `signal`, and what guards see; None takes them all


class Work(msgspec.Struct, frozen=True):
    """What a job of this step does. The kernel reads the timing, never the rest."""

    kind: str
    #: Evaluated when the job starts; gives the mapping the work kind receives.
    inputs: Expression | None = None
    #: For kinds that interpret more than inputs (a pipeline, a rule document): opaque here.
    program: Any = None
    timeout_ms: int | None = None  # per attempt
    lease_ms: int = 60_000
    retry: Retry = Retry()
    #: Where attempts that took too long have a budget of their own; None counts them as failures.
    retry_timeouts: Retry | None = None
    #: `retry` counts both, and `retry_timeouts` only says that a time limit has an end of its own.
    one_budget: bool = False
    #: An error ends the step run as aborted: no branch, no delivery, no failure of the run.
    error_aborts: bool = False
    #: Whoever kills its token (a closed join, the end of the run) lets work that runs come to its
    #: end; what it comes to has no effect.
    finishes_when_killed: bool = False
    losses_max: int = 20  # how often a job may be lost (crash, lease) before it fails
    #: The same for workers that were lost with it, where somebody has said how often.
    workers_lost_max: int | None = None
    pool: str = ""  # "" is the engine's own process
    #: The outcomes its answers can have, where they are known; the analysis counts on it.
    outcomes: tuple[str, ...] = ()
    label: str = ""  # of the one task that it is, where the dialect has tasks
    wait: WaitRule | None = None  # of a task that waits for a signal
    #: What it says or gives may name the run, and is of no use to another that redrives it.
    names_run: bool = False


class Fan(msgspec.Struct, frozen=True):
    """One job per slot for a single token, gathered before the step has its outcome."""

    #: Gives the list of slot labels or slot values when the token becomes ready; with `targets`,
    #: over what that job found (`found`).
    over: Expression
    rule: GatherRule
    window: int | None = None  # jobs in flight at once
    score: Expression | None = None  # over `answer`; no number means no candidate
    usable: Expression | None = None  # over `answer` and `outcome`; false is a negative answer
    #: Over `answer` and what a job of the token sees; a text says why the answer does not count.
    bounds: Expression | None = None
    #: A job that finds out whom to ask, each time anew.
    targets: Work | None = None
    #: How often everybody is asked again when a round came to nothing or ran out of time.
    rounds: Retry = Retry()
    #: A later round asks those of the first one, whoever else may be there by then; `rounds` are
    #: for a search that found nobody.
    keeps_targets: bool = False


class Loop(msgspec.Struct, frozen=True):
    """The step's work once per item of a collection, cut into shards; see `kernel.tracker`."""

    #: Gives a list, or a mapping that describes a collection to be read lazily.
    over: Expression
    mode: Literal["local", "fanout"] = "local"
    window: Expression | None = None  # shards in flight; None is one
    shard_size: int | None = None  # None follows the measured time of an item
    fail_fast: bool = True
    allow_partial: bool = False
    tolerate: int = 0
    tolerate_percent: float = 0.0
    item_retries: int = 0  # how often an item that failed goes out again
    shards_max: int = 10_000_000
    keep_results: bool = True
    reducers: Mapping[str, Reducer] = {}
    queue_ttl_ms: int | None = None  # how long a shard may wait for a worker


class Decision(msgspec.Struct, frozen=True):
    """A gate after the work (or instead of it): somebody named must say yes or no."""

    ask: str = ""
    actors: tuple[str, ...] = ()  # empty: anybody with access may decide
    on_reject: Literal["fail", "retry", "pause", "continue"] = "fail"
    #: Decides by itself when it gives true or false (or a mapping with `fulfilled`, `reason` and
    #: `evidence`), over `answer` and the `reply` of `source`. None leaves it to somebody.
    when: Expression | None = None
    #: Who is asked before `when` is looked at: a job over the answer.
    source: Work | None = None
    on_error: Literal["fail", "retry", "pause"] = "fail"  # neither yes nor no could be had
    #: Under which name the judgement is recorded, as a fact beside the end of the work.
    policy: str = ""
    #: How long people at the gate have; a source's time limit is that of its work.
    timeout_ms: int | None = None
    #: What it comes to that neither said anything in time; "" is an error like any other.
    on_timeout: Literal["", "fail", "skip", "abort_run"] = ""
    #: What is asked where it is a template: `ask` is its text then, for what cannot evaluate it.
    question: Expression | None = None


class Patch(msgspec.Struct, frozen=True):
    """A context write made when the step ends well, before its arcs are looked at."""

    key: str
    value: Expression
    reducer: Reducer = "set"


class Barrier(msgspec.Struct, frozen=True):
    """The step runs once for all the tokens that can still reach it, not once per token."""

    #: `reached`: whoever arrives counts. `all`: a predecessor that cannot come skips the step.
    need: Literal["reached", "all"] = "reached"


class Step(msgspec.Struct, frozen=True):
    name: str
    work: Work | None = None
    admission: Admission | None = None
    barrier: Barrier | None = None
    fan: Fan | None = None
    loop: Loop | None = None
    decision: Decision | None = None
    patches: tuple[Patch, ...] = ()
    #: Values of the step run itself, set when it ends well; its patches and arcs see them.
    locals: tuple[Patch, ...] = ()
    branches: tuple[Branch, ...] = ()
    timeout_ms: int | None = None  # from ready to outcome, retries included; for a fan per round
    on_timeout: Literal["fail", "skip", "abort_run"] = "fail"
    #: What a failure that is left after all retries comes to: the branch for it, as if the step
    #: had been skipped, a gate at which somebody has it tried again or gives up, the end of it all.
    on_failure: Literal["route", "skip", "pause", "abort_run"] = "route"
    description: str = ""
    position: Position | None = None
    #: Keys its result puts into the payload, where they are known; the analysis compares them.
    writes: frozenset[str] = frozenset()

    def branch_for(self, outcome: str) -> Branch | None:
        for branch in self.branches:
            if branch.outcome is None or branch.outcome == outcome:
                return branch
        return None


class RunPolicy(msgspec.Struct, frozen=True):
    deadline_ms: int | None = None
    no_route_is_error: bool = False
    #: What a failed step run means for the run as a whole.
    on_failure: Literal["fail", "handled", "partial"] = "fail"
    fail_fast: bool = False
    #: Tokens at a closed admission gate when nothing else moves.
    held: Literal["wait", "discard"] = "wait"
    on_final_failure: Literal["fail", "partial"] = "fail"
    #: A step that timed out ends the run as `step_timeout` rather than `failed`.
    timeouts_have_own_status: bool = True
    #: How many step runs may be under way at once; those to come wait in the order of the net.
    parallel_max: int | None = None


WhenFull = Literal["queue", "reject", "cancel_oldest"]


class ConcurrencyLimit(msgspec.Struct, frozen=True):
    """How many runs that have the same key may be under way at once; see `kernel.limits`."""

    limit: int
    key: Expression | None = None  # over the input; None: every run of the definition
    when_full: WhenFull = "queue"
    shared: bool = False  # runs of other definitions with this key count too


OWNER = "owner"  # the label of a run that says whose it is


class WakePolicy(Protocol):
    """Who may wake a token before its time, beside the owner of its run."""

    def allows(
        self,
        payload: Mapping[str, Any],  # that the token sleeps with
        step: str,
        *,
        way: Literal["rpc", "internal"],
        asker: str,
        rule: str = "",
    ) -> bool: ...


class ChildPath(msgspec.Struct, frozen=True):
    path: str
    position: Position


class FileName(msgspec.Struct, frozen=True):
    path: str
    position: Position


def child_target(given: Mapping[str, Any]) -> str:
    """What the inputs of a task name as its child: the path of a file or of the catalog, one
    version of it, or a number of the catalog. "" where they name none."""
    number, version, path = given.get("catalog_id"), given.get("version"), given.get("path")
    if number not in (None, ""):
        return f"catalog-id:{number}"
    if not isinstance(path, str) or not path or version in (None, "", "latest"):
        return path if isinstance(path, str) else ""
    return f"catalog://{path.removeprefix('catalog://')}@{version}"


class CredentialName(msgspec.Struct, frozen=True):
    name: str
    position: Position


class ExtraNeed(msgspec.Struct, frozen=True):
    """Packages beside those that are always there: the extra, and which part asks for it."""

    extra: str
    what: str
    position: Position


class Net(msgspec.Struct, frozen=True, weakref=True):
    name: str
    dialect: str
    fingerprint: str  # hash of the source it was compiled from
    steps: Mapping[str, Step]
    entry: str
    final: str | None = None
    policy: RunPolicy = RunPolicy()
    #: Entries of the input that it declares; others follow from their defaults.
    inputs: tuple[Input, ...] = ()
    workload: Mapping[str, Any] = {}
    #: Defaults to be worked out when a run starts, over its id (`run`) and its input (`args`).
    #: They lie under the input and are recorded with it.
    computed: Mapping[str, Expression] = {}
    #: Named secrets, in order. Leaves may be expressions over `env`, `keychain` (the entries
    #: before) and `workload`; only workers resolve them.
    keychain: tuple[Mapping[str, Any], ...] = ()
    #: Credentials that are named without an entry in `keychain`.
    credentials: tuple[CredentialName, ...] = ()
    #: Extras that its work cannot do without, as far as the definition says.
    extras: tuple[ExtraNeed, ...] = ()
    #: It may ask for credentials by name: those, or names that are worked out.
    asks_credentials: bool = False
    #: The first token's payload is the input of the run, and branches may hand it on.
    carries_payload: bool = False
    #: Payload keys that begin so travel with their token and are shown nowhere; "" hides none.
    private: str = ""
    #: Input keys that begin so are kept outside the log, for the work alone, until the run ends, as
    #: are those of `inputs` that are secret.
    sealed: str = ""
    wake_policy: WakePolicy | None = None  # None: only the owner wakes what sleeps
    #: Keys of the input that are read without being in `workload`; None: any may be.
    reads: frozenset[str] | None = frozenset()
    #: Definitions that are named as children.
    children: tuple[ChildPath, ...] = ()
    #: Files that are named, as far as the definition says.
    files: tuple[FileName, ...] = ()
    labels: Mapping[str, str] = {}
    description: str = ""
    path: str = ""  # under which it is known in a catalog, where it says so
    schedule: Mapping[str, Any] = {}  # when to begin runs of it, as its author wrote it
    limits: tuple[ConcurrencyLimit, ...] = ()  # a run begins when there is room under each
    priority: int = 0  # of its runs where they wait with others: the highest goes first

    @property
    def secret_inputs(self) -> frozenset[str]:
        return frozenset(one.name for one in self.inputs if one.secret)

    @property
    def has_secrets(self) -> bool:
        """Its work may look secrets up."""
        return bool(self.keychain) or self.asks_credentials
