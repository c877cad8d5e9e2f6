-- Sessions are numbered by owner. A row outlives its run: no number is ever given out twice.
CREATE TABLE session_numbers (
    owner  TEXT    NOT NULL CHECK (owner <> ''),
    number INTEGER NOT NULL CHECK (number >= 1),
    run    TEXT    NOT NULL CHECK (run <> ''),
    PRIMARY KEY (owner, number)
) STRICT, WITHOUT ROWID;

-- Who may read what is encrypted under a resource id (`rid`); the wrapped key is theirs to open.
CREATE TABLE grants (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    rid        TEXT    NOT NULL,
    scope      INTEGER NOT NULL CHECK (scope IN (1, 2)),
    grantee    TEXT    NOT NULL CHECK (grantee <> ''),
    owner      TEXT    NOT NULL CHECK (owner <> ''),
    rights     INTEGER NOT NULL CHECK (rights BETWEEN 0 AND 7),
    enc_dek    TEXT    NOT NULL,
    expires_at INTEGER NOT NULL,
    is_owner   INTEGER NOT NULL CHECK (is_owner IN (0, 1)),
    ref_addr   TEXT    NOT NULL,
    session    TEXT    NOT NULL,
    UNIQUE (rid, scope, grantee)
) STRICT;

CREATE INDEX grants_of_grantee ON grants (grantee, id);
CREATE INDEX grants_of_owner ON grants (owner, id);
