"""The kind `capability`: a decision source, which is a capability of the host.

What it says is judged by the definition (`dialects/arca/fulfilment.py`): an envelope, or whatever
else a component says that knows nothing of Arca.
"""

from __future__ import annotations

from anabranch.kernel.values import Answer, succeeded
from anabranch.modules.kit.host import Host, HostRefused, HostUnavailable
from anabranch.work.faults import fault
from anabranch.work.port import Task, whole

#: By the status with which the host refuses; these stay as they are.
_KINDS = {401: "auth", 403: "auth", 404: "not_found"}


class CapabilityDecision:
    def __init__(self, host: Host) -> None:
        self._host = host

    async def perform(self, task: Task) -> Answer:
        name = str(task.inputs.get("capability_id") or "")
        try:
            answer = await self._host.capability(name, task.inputs.get("input"))
        except HostUnavailable as error:
            return fault("connection", f"capability {name}: {error.message}", code=error.code)
        except HostRefused as error:
            kind = _KINDS.get(error.status, "client_error")
            return fault(kind, f"capability {name}: {error.message}", code=error.code)
        return whole(succeeded(answer.body))
