-- Who may ask: only the hash of a secret is kept, and a revoked token stays for the record.
CREATE TABLE tokens (
    id           TEXT    NOT NULL PRIMARY KEY CHECK (id <> ''),
    digest       TEXT    NOT NULL CHECK (length(digest) = 64),
    name         TEXT    NOT NULL,
    scopes       TEXT    NOT NULL CHECK (scopes <> ''),
    created_at   INTEGER NOT NULL,
    expires_at   INTEGER,
    last_used_at INTEGER,
    revoked_at   INTEGER
) STRICT;

-- Who asked for what, and what came of it. Rows are only ever added, and removed when they are old.
CREATE TABLE audit (
    number  INTEGER PRIMARY KEY AUTOINCREMENT,
    at      INTEGER NOT NULL,
    actor   TEXT    NOT NULL,
    action  TEXT    NOT NULL,
    subject TEXT    NOT NULL,
    outcome TEXT    NOT NULL,
    address TEXT    NOT NULL,
    detail  TEXT    NOT NULL
) STRICT;

CREATE INDEX audit_of_subject ON audit (subject, number) WHERE subject <> '';
CREATE INDEX audit_by_time ON audit (at);

-- What was answered to a request with a key, so that a repeat gets the same and does nothing.
-- No answer: somebody (`holder`) is at it, or was when the server stopped.
CREATE TABLE idempotency (
    actor      TEXT    NOT NULL,
    key        TEXT    NOT NULL CHECK (key <> ''),
    body       TEXT    NOT NULL,
    holder     TEXT    NOT NULL,
    expires_at INTEGER NOT NULL,
    status     INTEGER,
    answer     BLOB,
    PRIMARY KEY (actor, key),
    CHECK ((status IS NULL) = (answer IS NULL))
) STRICT;

CREATE INDEX idempotency_over ON idempotency (expires_at);
