-- The catalog: definitions by path, in versions. Ids are never given out twice.
CREATE TABLE catalog (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    path        TEXT    NOT NULL CHECK (path <> ''),
    version     INTEGER NOT NULL CHECK (version > 0),
    fingerprint TEXT    NOT NULL CHECK (fingerprint <> ''),
    name        TEXT    NOT NULL,
    dialect     TEXT    NOT NULL,
    created_at  INTEGER NOT NULL,
    created_by  TEXT    NOT NULL,
    UNIQUE (path, version)
) STRICT;
