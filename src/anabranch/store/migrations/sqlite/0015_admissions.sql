-- Limits across runs: a row for each key of a run that has limits, from shortly after it is recorded
-- until it has ended. Without `admitted_at` it waits for a place.
CREATE TABLE admissions (
    run         TEXT NOT NULL CHECK (run <> ''),
    key         TEXT NOT NULL CHECK (key <> ''),
    run_limit   INTEGER NOT NULL CHECK (run_limit >= 1),
    when_full   TEXT NOT NULL CHECK (when_full IN ('queue', 'reject', 'cancel_oldest')),
    priority    INTEGER NOT NULL,
    asked_at    INTEGER NOT NULL,
    admitted_at INTEGER,
    PRIMARY KEY (run, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX admissions_waiting ON admissions (key, priority DESC, asked_at, run)
WHERE admitted_at IS NULL;
CREATE INDEX admissions_wanted ON admissions (key, run_limit) WHERE admitted_at IS NULL;
CREATE INDEX admissions_impatient ON admissions (key)
WHERE admitted_at IS NULL AND when_full <> 'queue';
CREATE INDEX admissions_holding ON admissions (key, admitted_at) WHERE admitted_at IS NOT NULL;
