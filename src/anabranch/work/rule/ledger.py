"""The gas of sessions: what was spent, what is set aside for steps at work, and the budget.

The log of a run knows what its finished steps used (`ctx["gas"]`). Steps at work have not reported
yet, so their worst case is set aside here, in memory; after a restart they run again and set it
aside again.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import msgspec

RUNS_MAX: Final = 10_000


class _Account(msgspec.Struct):
    spent: int = 0
    reserved: int = 0
    exhausted: bool = False


class GasLedger:
    def __init__(self, runs_max: int = RUNS_MAX) -> None:
        self._accounts: OrderedDict[str, _Account] = OrderedDict()
        self._runs_max = runs_max

    def reserve(self, run: str, gas: int, *, recorded: int, budget: int) -> bool:
        """Set gas aside. False when the budget does not allow it, now and from then on; a budget
        of 0 is none."""
        account = self._account(run)
        account.spent = max(account.spent, recorded)
        if budget and account.spent + account.reserved + gas > budget:
            account.exhausted = True
        if account.exhausted:
            return False
        account.reserved += gas
        return True

    def settle(self, run: str, reserved: int, used: int) -> None:
        """The step is over: it used that much of what was set aside for it."""
        account = self._account(run)
        account.reserved -= reserved
        account.spent += used

    def exhausted(self, run: str) -> bool:
        account = self._accounts.get(run)
        return account is not None and account.exhausted

    def _account(self, run: str) -> _Account:
        account = self._accounts.get(run)
        if account is None:
            account = self._accounts[run] = _Account()
            self._forget()
        self._accounts.move_to_end(run)
        return account

    def _forget(self) -> None:
        """Drop the longest unused accounts; the log has what they spent."""
        for run in list(self._accounts)[: max(0, len(self._accounts) - self._runs_max)]:
            if not self._accounts[run].reserved:
                del self._accounts[run]
