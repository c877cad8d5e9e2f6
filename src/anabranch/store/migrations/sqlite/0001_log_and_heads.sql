-- The log is the truth. A row holds the events `last_seq - count + 1 … last_seq` of one run.
-- Keyed by the last number, "everything after n" is one range even when n lies inside a row.
-- An ordinary table beside its key: new rows go to the end of the file whatever their run.
CREATE TABLE log (
    run      TEXT    NOT NULL,
    last_seq INTEGER NOT NULL,
    count    INTEGER NOT NULL CHECK (count >= 1),
    at       INTEGER NOT NULL,
    events   BLOB    NOT NULL,
    PRIMARY KEY (run, last_seq),
    CHECK (last_seq >= count)
) STRICT;

-- The index card of a run, written in the transaction of the events it summarises.
CREATE TABLE heads (
    run        TEXT    NOT NULL PRIMARY KEY CHECK (run <> ''),
    definition TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    dialect    TEXT    NOT NULL,
    status     TEXT    NOT NULL,
    seq        INTEGER NOT NULL CHECK (seq >= 1),
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    next_wake  INTEGER,
    labels     TEXT    NOT NULL CHECK (labels LIKE '{%}'),
    parent     TEXT,
    origin     TEXT,
    finished   INTEGER NOT NULL CHECK (finished IN (0, 1))
) STRICT;

CREATE INDEX heads_due ON heads (next_wake, run) WHERE next_wake IS NOT NULL AND finished = 0;
CREATE INDEX heads_unfinished ON heads (run) WHERE finished = 0;
CREATE INDEX heads_newest ON heads (created_at, run);
CREATE INDEX heads_children ON heads (parent, created_at, run) WHERE parent IS NOT NULL;

-- The newest state of a run, never a part of its history: at most one, replaced at will.
CREATE TABLE snapshots (
    run   TEXT    NOT NULL PRIMARY KEY,
    seq   INTEGER NOT NULL CHECK (seq >= 1),
    state BLOB    NOT NULL
) STRICT;

CREATE TABLE definitions (
    fingerprint TEXT    NOT NULL PRIMARY KEY,
    dialect     TEXT    NOT NULL,
    name        TEXT    NOT NULL,
    source      TEXT    NOT NULL,
    origin      TEXT    NOT NULL,
    created_at  INTEGER NOT NULL
) STRICT;

-- Content by its own hash: a row never changes.
CREATE TABLE payloads (
    sha256  TEXT NOT NULL PRIMARY KEY CHECK (length(sha256) = 64),
    content BLOB NOT NULL
) STRICT;

-- What other processes ask of the engine. AUTOINCREMENT: a number is never given out twice.
CREATE TABLE mailbox (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    run       TEXT    NOT NULL,
    body      BLOB    NOT NULL,
    posted_at INTEGER NOT NULL,
    answer    BLOB
) STRICT;

CREATE INDEX mailbox_unanswered ON mailbox (id) WHERE answer IS NULL;
