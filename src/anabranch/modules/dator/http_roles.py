"""Roles over loopback HTTP, at the endpoints of the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anabranch.errors import AnabranchError
from anabranch.files import read_limited
from anabranch.market.node.modules.transport import ModuleCallFailed, ModuleDisconnected
from anabranch.modules.dator.config import RoleConfig
from anabranch.modules.dator.roles import RoleFailed, RoleUnavailable
from anabranch.modules.kit.loopback import LoopbackCalls

_LATER = (429, 502, 503, 504)
_TOKEN_BYTES = 4096
_SAID_MAX = 300


class HttpRoles:
    """Implements `RoleCalls`. Tokens are read with every call: a role may have made another one."""

    def __init__(self, roles: Mapping[str, RoleConfig]) -> None:
        self._roles = roles
        self._calls = LoopbackCalls()

    async def call(
        self, capability_id: str, request: Mapping[str, Any], seconds: float
    ) -> Mapping[str, Any]:
        role = self._roles.get(capability_id)
        if role is None:
            raise RoleUnavailable(f"roles has no {capability_id}")
        try:
            answer = await self._calls.post(
                role.endpoint,
                role.invoke_path,
                request,
                headers=_headers(role),
                seconds=seconds,
                answer_bytes=role.max_answer_bytes,
            )
        except ModuleCallFailed as error:
            raise _failed(error) from None
        if answer.status in _LATER:
            raise RoleUnavailable(f"the role answered with {answer.status}")
        if not answer.good:
            said = answer.body.get("detail") if isinstance(answer.body, Mapping) else None
            message = f"the role answered with {answer.status}: {str(said or '')[:_SAID_MAX]}"
            raise RoleFailed(message, code="role-refused")
        if not isinstance(answer.body, Mapping):
            raise RoleFailed("the role answered with no object")
        return answer.body

    async def close(self) -> None:
        await self._calls.close()


def _failed(error: ModuleCallFailed) -> RoleFailed | RoleUnavailable:
    if error.code == "module_unreachable":
        return RoleUnavailable(error.message, begun=isinstance(error, ModuleDisconnected))
    if error.code == "module_timeout":
        return RoleFailed(error.message, code="role-timeout")
    return RoleFailed(error.message)


def _headers(role: RoleConfig) -> dict[str, str]:
    if not role.auth_header:
        return {}
    try:
        token = read_limited(Path(role.token_file), _TOKEN_BYTES).decode("ascii").strip()
    except (OSError, UnicodeDecodeError, AnabranchError) as error:
        raise RoleUnavailable(f"{role.token_file} cannot be read: {error}") from None
    return {role.auth_header: token}
