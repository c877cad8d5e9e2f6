"""The part of a relational store that numbers the sessions of each owner."""

from __future__ import annotations

from anabranch.store.relational.connection import RelationalPart


class RelationalSessionNumbers(RelationalPart):
    def next_session_number(self, owner: str) -> int:
        return int(self._rows(self.sql["next_session_number"], {"owner": owner})[0][0])

    def take_session_number(self, owner: str, run: str, wanted: int | None = None) -> int | None:
        with self._transaction() as db:
            self._alone(db, "session", owner)
            (number,) = db.execute(self.sql["next_session_number"], {"owner": owner}).fetchone()
            if wanted is not None and wanted != number:
                return None
            row = {"owner": owner, "number": number, "run": run}
            db.execute(self.sql["add_session_number"], row)
        return int(number)

    def give_back_session_number(self, owner: str, number: int, run: str) -> None:
        with self._transaction() as db:
            self._alone(db, "session", owner)
            row = {"owner": owner, "number": number, "run": run}
            db.execute(self.sql["drop_session_number"], row)

    def session_run(self, owner: str, number: int) -> str | None:
        if not 0 < number < 1 << 63:
            return None
        rows = self._rows(self.sql["session_run"], {"owner": owner, "number": number})
        return str(rows[0][0]) if rows else None
