"""Settings: every number and path a person may want to change, with its environment variable.

`settings_file` reads the same from `anabranch.toml`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from anabranch.errors import InputError

PREFIX = "ANABRANCH_"
FILE = "anabranch.toml"
FILE_VARIABLE = PREFIX + "SETTINGS"  # names another file; empty: none is read
CHOICES = {
    "synchronous": ("FULL", "NORMAL"),
    "webhook_addresses": ("public", "any"),
    "chain_rule_urls": ("refuse", "allow"),
    "chain_execution": ("record", "simulate", "send"),
    "rpc_access": ("off", "token", "permit"),
    "require_tokens": ("no", "yes"),
}
ABOVE_ZERO = ("_max", "chain_timeout_seconds", "audit_days", "server_lease_seconds")
#: Paths; in a file they are relative to the folder that it is in.
PATHS = (
    *("store", "rule_keys_file", "chain_signer_key_file", "chain_sent", "catalog", "participants"),
    *("token_file", "secret_key_file", "credential_folder", "tls_cert", "tls_key"),
)
PATH_LISTS = ("files_allowed",)  # several of them, as in PATH; or one of these words
PATH_WORDS = ("any", "none")
#: What a process of inline code takes, with some libraries; a quarter of the memory is for them.
_PROCESS_BYTES = 64 * 1024 * 1024
_PROCESSES_MOST = 64
_MEMORY_LIMITS = ("memory.max", "memory/memory.limit_in_bytes")  # of both kinds of cgroups
#: Values that are secret whatever they are.
SECRETS = ("token", "secret_key")


def _memory_bytes() -> int:
    """Of this machine, or what its container is given, where that is less."""
    found = [1 << 30]  # where the system does not say
    with suppress(AttributeError, OSError, ValueError):
        found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for name in _MEMORY_LIMITS:
        with suppress(OSError, ValueError), open(f"/sys/fs/cgroup/{name}") as file:
            found.append(int(file.read()))  # "max" is no limit
    return min(found)


@dataclass(frozen=True, slots=True)
class Settings:
    """Each field is also `ANABRANCH_<FIELD>` in the environment."""

    #: The SQLite file, or postgresql://…, which may hold a password; ":memory:" keeps nothing
    store: str = field(default="anabranch.db", repr=False)
    synchronous: Literal["FULL", "NORMAL"] = "FULL"  # NORMAL may lose the last turns at power loss
    jobs_max: int = 10_000  # jobs at work at once, of all kinds
    threads_max: int = 16  # for blocking callables
    #: For inline Python code; as many as there are cores may compute, the others wait for something
    processes_max: int = max(2, min(_PROCESSES_MOST, _memory_bytes() // 4 // _PROCESS_BYTES))
    shells_max: int = 16  # shell commands, scripts and containers at once
    container_command: str = ""  # what runs containers; empty: podman or docker, whichever is there
    inline_environment: str = ""  # variables that shell and Python work inherits: "NODE_ENV AWS_*"
    inline_user: str = ""  # the user of this machine that shell and Python work runs as
    no_inline: str = ""  # kinds of work that this process does not do: "shell python"
    inline_bytes_max: int = 64 * 1024  # a larger result is kept as a payload and passed as a ref
    result_bytes_max: int = 64 * 1024 * 1024  # a larger one is an error
    expression_bytes_max: int = 256 * 1024 * 1024  # of large values that expressions read at once
    run_steps_max: int = 1_000_000  # step runs of one run
    run_log_bytes_max: int = 1024 * 1024 * 1024  # of the events of one run
    child_depth_max: int = 64  # runs that begin one another as children
    http_body_bytes: int = 16 * 1024 * 1024  # of the answer to one HTTP call
    http_addresses: str = ""  # where calls of definitions may go; empty: any; see work/network
    files_allowed: str = ""  # folders whose files definitions may name; empty: any; see file_policy
    postgres_identity: str = ""  # as whom tasks log in: "task", "machine"; empty: machine
    rule_addresses: str = "public"  # where API calls and nodes that rules name may go
    sql_rows_max: int = 100_000  # of one statement; loop over the query for more
    sql_result_bytes: int = 32 * 1024 * 1024  # of one statement
    artifact_bytes: int = 64 * 1024 * 1024  # of one artifact
    collection_line_bytes: int = 16 * 1024 * 1024  # of one line or record of a file looped over
    collection_shard_bytes: int = 64 * 1024 * 1024  # of the items of one shard of such a file
    retention_days: float = 36_500.0  # payloads of scope `execution` outlive their run so long
    keep_runs: str = ""  # how long ended runs are kept, by status: "completed=30d failed=90d"
    #: How often work may begin: "kind:http=100/m host:api.example.org=5/s+10 pool:gpu=2/s"
    rate_limits: str = ""
    evict_after_seconds: float = 30.0  # idle runs leave memory after that
    work_log_bytes_max: int = 1024 * 1024  # kept of what one attempt prints: its head and tail
    run_work_log_bytes_max: int = 50 * 1024 * 1024  # and of what all attempts of a run print
    snapshot_every: int = 200  # events between two snapshots of a long run
    grace_seconds: float = 10.0  # how long an orderly stop waits for running jobs
    store_partitions: int = 0  # of a new store on PostgreSQL; 0: 128
    server_lease_seconds: float = 15.0  # after so long without a word a server is replaced
    poll_seconds: float = 0.03  # how often the engine looks for messages of other processes
    pools_here: str = ""  # pools whose jobs the engine does itself: "gpu eu", or "*" for all
    #: Pools that a cluster does: "heavy=dask://host:8786, gpu=ray:auto"; may hold a password
    pools: str = field(default="", repr=False)
    webhook_addresses: Literal["public", "any"] = "public"  # where notifications may go
    webhook_timeout_seconds: float = 10.0  # for one attempt
    webhook_body_bytes: int = 256 * 1024  # of one notification; a larger one is sent without fields
    webhook_age_hours: float = 24.0  # a notification that fails for so long is given up
    webhook_kept_days: float = 7.0  # how long what was delivered or given up can be looked at
    webhook_backlog_max: int = 10_000  # notifications that wait for one webhook
    health_stall_seconds: float = 15.0  # an engine, a commit or a timer that is later is not well
    health_queue_seconds: float = 600.0  # a job that waits so long for its pool is worth a warning
    health_disk_bytes: int = 256 * 1024 * 1024  # with less room beside the store it is not well
    otel_endpoint: str = field(default="", repr=False)  # where traces go; empty: there are none
    chain_url: str = field(default="", repr=False)  # the JSON-RPC node of rules; may hold a key
    chain_id: int = 0  # the chain that permits are for; 0: the one of chain_url
    rule_keys_file: str = ""  # the keys of encrypted rules and logs
    rpc_access: Literal["off", "token", "permit"] = "off"  # who may call methods at /rpc
    chain_endpoints: str = field(default="", repr=False)  # more of them: "name=url name=url"
    chain_rule_urls: Literal["refuse", "allow"] = "refuse"  # nodes that rules name by URL
    chain_timeout_seconds: float = 20.0  # for one answer of a node
    chain_patience_seconds: float = 3_600.0  # how long a step waits for a node that is away
    chain_execution: Literal["record", "simulate", "send"] = "record"  # the calls of rules
    chain_signer_key_env: str = ""  # the variable that holds the private key
    chain_signer_key_file: str = ""  # or the file that does
    chain_sent: str = ""  # the file that remembers what was sent; beside the store if empty
    chain_gas_max: int = 5_000_000  # of one call
    chain_fee_max: int = 10**18  # wei that the gas of one call may cost
    chain_value_wei: int = 0  # that one call of a rule may send along, at most
    chain_receipt_seconds: float = 120.0  # how long to wait until a call is mined
    catalog: str = ""  # a folder of definitions that children and runs find by path
    participants: str = ""  # the file that says who can be asked, and how
    participant_reply_bytes: int = 1024 * 1024  # a larger reply of a participant is no answer
    participant_seconds: float = 300.0  # for one request, where the step has no timeout
    server: str = ""  # the URL of a server; verbs then go to it instead of to the store
    token: str = field(default="", repr=False)  # the token for it
    token_file: str = ""  # or the file that holds it
    secret_key: str = field(default="", repr=False)  # what secrets of a store are made from
    secret_key_file: str = ""  # or the file that holds it; `<store>.key` if empty
    credential_env_prefix: str = ""  # variables that begin so are credentials; none if empty
    credential_folder: str = ""  # the folder with a file for each credential
    credential_command: str = ""  # prints the credential whose name it is given
    credential_command_seconds: float = 10.0  # for one such call
    serve_host: str = "127.0.0.1"  # where `serve` listens; others than loopback need tokens
    serve_port: int = 8629  # of `anabranch serve`
    serve_advertise: str = ""  # the URL at which workers reach it; empty: from host and port
    serve_names: str = ""  # further names that a server is reached by: "a.example b.example"
    serve_proxies: str = ""  # addresses of proxies whose X-Forwarded-For is believed
    serve_connections_max: int = 1000  # at once; idle ones make room
    streams_per_token_max: int = 50  # event streams that one token has open at once
    waits_per_token_max: int = 50  # requests of one token that wait for a run
    checks_per_token_max: int = 4  # definitions of one token that are checked at once
    require_tokens: Literal["no", "yes"] = "no"  # yes: also on a loopback address
    tls_cert: str = ""  # the file with the certificate chain of a server
    tls_key: str = ""  # and the one with its key
    audit_days: float = 400.0  # how long entries of the audit trail are kept

    @property
    def payload_bytes_max(self) -> int:
        """Of what is kept beside the log: a result, or an artifact."""
        return max(self.result_bytes_max, self.artifact_bytes)


def from_environment(environment: Mapping[str, str] | None = None) -> Settings:
    """The defaults, overlaid with what the environment says."""
    env = os.environ if environment is None else environment
    return replace(Settings(), **given_in(env))


def given_in(environment: Mapping[str, str]) -> dict[str, Any]:
    """What the environment says, by field."""
    return {
        name: parse(name, environment[variable], variable)
        for name in DEFAULTS
        if (variable := PREFIX + name.upper()) in environment
    }


def parse(name: str, text: str, what: str) -> Any:
    """The value of a field; `what` is the field as a message calls it."""
    if name in CHOICES:
        return _choice(name, text, what)
    if name == "keep_runs" and text:
        from anabranch.ages import kept_ages  # few have it

        kept_ages(text, what)
    if name == "rate_limits" and text:
        from anabranch.rates import read_rates  # few have it

        read_rates(text, what)
    default = DEFAULTS[name]
    if isinstance(default, str):
        return text
    try:
        value = type(default)(text)
    except ValueError:
        kind = "a whole number" if isinstance(default, int) else "a number"
        raise InputError(f"{what} must be {kind}, not {text!r}") from None
    if not math.isfinite(value) or value < 0:
        raise InputError(f"{what} must be zero or more, not {text!r}")
    if value == 0 and name.endswith(ABOVE_ZERO):
        raise InputError(f"{what} must be above zero, not {text!r}")
    return value


def _choice(name: str, text: str, what: str) -> str:
    words = CHOICES[name]
    found = [word for word in words if word.lower() == text.lower()]
    if not found:
        listed = f"{', '.join(words[:-1])} or {words[-1]}"
        raise InputError(f"{what} must be {listed}, not {text!r}")
    return found[0]


DEFAULTS: Mapping[str, Any] = {each.name: each.default for each in fields(Settings)}
