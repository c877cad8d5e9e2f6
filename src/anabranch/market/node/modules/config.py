"""How modules are set up: the section `modules` of a node's configuration, read and checked.

Each entry is an executor: which module it runs, how it is launched, where it listens, what it is
granted. Everything wrong is refused with the name of the setting before a process is started.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from anabranch.errors import InputError

DEFAULT_INVOKE = "/v1/middleware/invoke"
INIT_PATH = "/v1/middleware/init"
#: What every module gets: a group of its own, little environment, one loopback port.
SANDBOX_PROFILES = ("", "none", "default")
_MODULE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_CAPABILITY = re.compile(r"[a-z][a-z0-9_-]*(\.[a-z][a-z0-9_-]*)*(\.\*)?")
_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,63}")
_PATH = re.compile(r"(/[A-Za-z0-9._~%:@!$&'()*+,;=-]+)+")
_LOOPBACK = {"127.0.0.1": "127.0.0.1", "::1": "::1", "localhost": "127.0.0.1"}
_RESERVED_ENV = "ORBIPLEX_"


class Launch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    executable: str = ""
    args: tuple[str, ...] = ()
    cwd: str = ""
    env: dict[str, str] = {}


class HttpEndpoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    endpoint: str = ""  # http://127.0.0.1:47981
    invoke_path: str = DEFAULT_INVOKE
    ready_path: str = "/readyz"
    health_path: str = "/healthz"
    method: Literal["POST"] = "POST"
    headers: dict[str, str] = {}
    startup_timeout_ms: int = 10_000
    request_timeout_ms: int = 5_000
    max_response_bytes: int = 1024 * 1024
    health_interval_ms: int = 5_000
    stop_timeout_ms: int = 5_000


class RestartPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    mode: Literal["never", "on_failure"] = "on_failure"
    max_restarts: int = 5
    window_sec: int = 60


class AcceptorConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which artifacts the module takes in, and where."""

    acceptor_id: str
    artifact_schema: str
    component_id: str = ""
    content_type: str = ""  # "" takes any
    invoke_path: str = "/v1/artifact-delivery/accept"
    request_timeout_ms: int = 10_000
    max_response_bytes: int = 64 * 1024


class ModuleConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One executor. `kind` in_process takes a module object that the program attached."""

    id: str
    kind: Literal["http_local_json", "in_process"] = "http_local_json"
    module_id: str = ""  # "" is `id`
    component_id: str = ""  # "" is the module id
    launch: Launch = Launch()
    http: HttpEndpoint = HttpEndpoint()
    sandbox_profile: str = ""
    restart_policy: RestartPolicy = RestartPolicy()
    auth_token: str = msgspec.field(default="", name="auth-token")  # header name; "" sends none
    auth_token_file: str = msgspec.field(default="", name="auth-token-file")
    module_dir: str = ""  # its factory configuration is in <module_dir>/config
    grants: tuple[str, ...] = ()  # host capabilities: peer.message.dispatch, peer.*
    acceptors: tuple[AcceptorConfig, ...] = ()
    enabled: bool = True

    @property
    def module(self) -> str:
        return self.module_id or self.id

    @property
    def component(self) -> str:
        return self.component_id or self.module

    def grants_capability(self, name: str) -> bool:
        return any(
            name == grant or (grant.endswith(".*") and name.startswith(grant[:-1]))
            for grant in self.grants
        )


def read_modules(section: Any) -> tuple[ModuleConfig, ...]:
    """The modules of a configuration. Raises `InputError`; its message names the setting."""
    if section is None:
        return ()
    try:
        modules = msgspec.convert(section, tuple[ModuleConfig, ...])
    except msgspec.ValidationError as error:
        raise InputError(f"modules: {error}", code="module_config") from None
    for at, module in enumerate(modules):
        if problem := _problem(module):
            raise InputError(f"modules[{at}].{problem}", code="module_config")
    if problem := _shared(modules):
        raise InputError(f"modules: {problem}", code="module_config")
    return modules


def loopback_address(endpoint: str) -> tuple[str, int]:
    """Host and port of a loopback endpoint. Raises `InputError` for every other."""
    try:
        url = urlsplit(endpoint)
        host, port = _LOOPBACK.get(url.hostname or ""), url.port
    except ValueError:
        host, port, url = None, None, urlsplit("")
    if url.scheme != "http" or host is None or not port or url.username or url.path.strip("/"):
        raise InputError(
            f"{endpoint[:100]!r} is not a loopback endpoint such as http://127.0.0.1:47981",
            code="not_loopback",
        )
    return host, port


def is_module_path(path: str) -> bool:
    """A path at a module that cannot be read as any other."""
    return (
        len(path) <= 256
        and _PATH.fullmatch(path) is not None
        and not any(part in ("", ".", "..") for part in path[1:].split("/"))
        and "%" not in path
    )


def _problem(module: ModuleConfig) -> str:
    for name in ("id", "module", "component"):
        if not _MODULE_ID.fullmatch(getattr(module, name)):
            setting = name if name == "id" else f"{name}_id"
            return f"{setting}: 1 to 64 letters, digits, - _ . are allowed"
    if module.auth_token and not _HEADER.fullmatch(module.auth_token):
        return "auth-token: this is the name of a header, such as X-Arca-Auth"
    if module.auth_token_file and not module.auth_token_file.startswith("/"):
        return "auth-token-file: an absolute path is needed"
    if module.sandbox_profile not in SANDBOX_PROFILES:
        known = ", ".join(filter(None, SANDBOX_PROFILES))
        return f"sandbox_profile: {module.sandbox_profile[:80]!r} is not known here ({known})"
    for grant in module.grants:
        if not _CAPABILITY.fullmatch(grant):
            return f"grants: {grant[:80]!r} is not the name of a host capability"
    return _http_problem(module) or _launch_problem(module) or _acceptor_problem(module)


def _http_problem(module: ModuleConfig) -> str:
    http = module.http
    for name in ("invoke_path", "ready_path", "health_path"):
        if not is_module_path(getattr(http, name)):
            return f"http.{name}: a path such as /healthz is needed"
    for name in ("startup_timeout_ms", "request_timeout_ms", "max_response_bytes"):
        if getattr(http, name) < 1:
            return f"http.{name}: at least 1 is needed"
    for name in ("health_interval_ms", "stop_timeout_ms"):
        if getattr(http, name) < 0:
            return f"http.{name}: at least 0 is needed"
    for name, value in http.headers.items():
        if not _HEADER.fullmatch(name) or not value.isprintable():
            return f"http.headers: {name[:80]!r} cannot be sent"
    if module.kind == "http_local_json":
        try:
            loopback_address(http.endpoint)
        except InputError as error:
            return f"http.endpoint: {error.message}"
    return ""


def _launch_problem(module: ModuleConfig) -> str:
    launch = module.launch
    if module.kind == "http_local_json" and not module.launch.executable:
        return "launch.executable: it is missing"
    if any("\0" in text for text in (launch.executable, launch.cwd, *launch.args)):
        return "launch: a NUL cannot be part of a command"
    for name, value in module.launch.env.items():
        if name.startswith(_RESERVED_ENV) or not name or "=" in name or "\0" in name:
            return f"launch.env: {name[:80]!r} is not for a module to set"
        if "\0" in value:
            return f"launch.env: a NUL cannot be part of {name[:80]!r}"
    policy = module.restart_policy
    if policy.max_restarts < 0 or policy.window_sec < 1:
        return "restart_policy: max_restarts is at least 0, window_sec at least 1"
    return ""


def _acceptor_problem(module: ModuleConfig) -> str:
    for at, one in enumerate(module.acceptors):
        if not one.acceptor_id or not one.artifact_schema:
            return f"acceptors[{at}]: acceptor_id and artifact_schema are needed"
        if one.component_id not in ("", module.component):
            return f"acceptors[{at}].component_id: it is that of the module, {module.component}"
        if not is_module_path(one.invoke_path):
            return f"acceptors[{at}].invoke_path: a path such as /v1/accept is needed"
        if one.request_timeout_ms < 1 or one.max_response_bytes < 1:
            return f"acceptors[{at}]: limits are at least 1"
    return ""


def _shared(modules: tuple[ModuleConfig, ...]) -> str:
    """What two modules cannot both have."""
    enabled = [one for one in modules if one.enabled]
    listening = [one for one in enabled if one.kind == "http_local_json"]
    taken: Mapping[str, list[Any]] = {
        "id": [one.id for one in modules],
        "module_id": [one.module for one in modules],
        "http.endpoint": [loopback_address(one.http.endpoint) for one in listening],
        "acceptor_id": [each.acceptor_id for one in modules for each in one.acceptors],
    }
    for name, values in taken.items():
        twice = [value for value, times in Counter(values).items() if times > 1]
        if twice:
            return f"two of them have the same {name}, {twice[0]}"
    return ""
