-- The state of a node: every thing has a stream of events, and a card of what they come to.
CREATE TABLE streams (
    stream     TEXT    NOT NULL UNIQUE CHECK (stream <> ''),
    family     TEXT    NOT NULL CHECK (family <> ''),
    seq        INTEGER NOT NULL CHECK (seq >= 1),
    state      BLOB    NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    open       INTEGER NOT NULL CHECK (open IN (0, 1)),
    wake       INTEGER,
    group_name TEXT    NOT NULL
) STRICT;

CREATE INDEX streams_open ON streams (stream) WHERE open = 1;
CREATE INDEX streams_newest ON streams (family, created_at, stream);
CREATE INDEX streams_open_newest ON streams (family, created_at, stream) WHERE open = 1;
CREATE INDEX streams_group_newest ON streams (family, group_name, created_at, stream)
    WHERE group_name <> '';
CREATE INDEX streams_closed ON streams (family, updated_at, stream) WHERE open = 0;

-- Rows are appended, so a commit touches few pages whatever streams it is about.
CREATE TABLE stream_events (
    stream   TEXT    NOT NULL CHECK (stream <> ''),
    last_seq INTEGER NOT NULL,
    count    INTEGER NOT NULL CHECK (count BETWEEN 1 AND last_seq),
    at       INTEGER NOT NULL,
    events   BLOB    NOT NULL,
    UNIQUE (stream, last_seq)
) STRICT;
