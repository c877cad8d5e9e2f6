-- A position for every row of the log, so that there is one order over all runs. SQLite lets one
-- writer in at a time, so a later row is never visible before an earlier one. AUTOINCREMENT: a
-- purge of the newest rows does not let their positions be given out again.
ALTER TABLE log RENAME TO log_before;

CREATE TABLE log (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    run      TEXT    NOT NULL,
    last_seq INTEGER NOT NULL,
    count    INTEGER NOT NULL CHECK (count >= 1),
    at       INTEGER NOT NULL,
    events   BLOB    NOT NULL,
    UNIQUE (run, last_seq),
    CHECK (last_seq >= count)
) STRICT;

INSERT INTO log (run, last_seq, count, at, events)
SELECT run, last_seq, count, at, events FROM log_before ORDER BY rowid;

DROP TABLE log_before;

-- Whom to tell of what. `cursor` is the position of the last row that was looked at.
CREATE TABLE hooks (
    id         TEXT    NOT NULL PRIMARY KEY CHECK (id <> ''),
    url        TEXT    NOT NULL,
    secret     TEXT    NOT NULL CHECK (secret LIKE 'text:_%' OR secret LIKE 'env:_%'),
    kinds      TEXT    NOT NULL CHECK (kinds LIKE '[%]'),
    labels     TEXT    NOT NULL CHECK (labels LIKE '{%}'),
    dialect    TEXT,
    name       TEXT,
    enabled    INTEGER NOT NULL CHECK (enabled IN (0, 1)),
    created_at INTEGER NOT NULL,
    cursor     INTEGER NOT NULL CHECK (cursor >= 0)
) STRICT;

-- What was found for a hook. Only the one of a run whose turn it is has an instant in `due`.
CREATE TABLE deliveries (
    hook        TEXT    NOT NULL,
    run         TEXT    NOT NULL,
    seq         INTEGER NOT NULL CHECK (seq >= 1),
    kind        TEXT    NOT NULL,
    body        BLOB    NOT NULL,
    found_at    INTEGER NOT NULL,
    state       TEXT    NOT NULL CHECK (state IN ('pending', 'done', 'dead')),
    attempts    INTEGER NOT NULL CHECK (attempts >= 0),
    due         INTEGER,
    last_at     INTEGER,
    last_status INTEGER,
    last_error  TEXT    NOT NULL,
    PRIMARY KEY (hook, run, seq),
    CHECK (state = 'pending' OR due IS NULL)
) STRICT;

CREATE INDEX deliveries_due ON deliveries (hook, due, run) WHERE due IS NOT NULL;
CREATE INDEX deliveries_waiting ON deliveries (hook, run, seq, found_at) WHERE state = 'pending';
CREATE INDEX deliveries_dead ON deliveries (hook, found_at, run, seq) WHERE state = 'dead';
CREATE INDEX deliveries_newest ON deliveries (hook, found_at, run, seq);
CREATE INDEX deliveries_over ON deliveries (last_at) WHERE state <> 'pending';
