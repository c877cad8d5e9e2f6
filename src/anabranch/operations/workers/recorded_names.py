"""What templates of a job see, as far as the server knows it from the record.

The tasks before in a pipeline, secrets and what the environment of the worker holds are known to
the worker alone: a template that looks at them cannot be evaluated here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from anabranch.errors import ExpressionError
from anabranch.kernel.routing import names_for
from anabranch.kernel.state import Job
from anabranch.runtime.jobs.tasks import whole_names
from anabranch.runtime.live_run import LiveRun
from anabranch.runtime.values.loading import Fetch

_NOTHING: Mapping[str, Any] = {}


class OnlyThere(Mapping[str, Any]):
    """Names that only the worker knows, and those among them that the record has as well."""

    def __init__(self, known: Mapping[str, Any] = _NOTHING) -> None:
        self._known = known

    def __getitem__(self, key: str) -> Any:
        if key in self._known:
            return self._known[key]
        raise ExpressionError(f"only the worker knows {key!r}")

    def get(self, key: str, default: Any = None) -> Any:  # noqa: ARG002
        return self[key]

    def __contains__(self, key: object) -> bool:
        if key in self._known:
            return True
        raise ExpressionError(f"only the worker knows {key!r}")

    def __iter__(self) -> Iterator[str]:
        raise ExpressionError("only the worker knows them")

    def __len__(self) -> int:
        raise ExpressionError("only the worker knows them")


def recorded_names(live: LiveRun, job: Job, fetch: Fetch) -> dict[str, Any]:
    """The names of a job that is all there is of its step."""
    names = names_for(live.state, live.state.tokens[job.token])
    workload = {"workload": names.pop("workload")}
    if not live.state.sealed:  # of one with secrets each key is asked for by itself
        workload = whole_names(workload, fetch)
    return {**whole_names(names, fetch), **workload}
