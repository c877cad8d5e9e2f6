-- A token with the scope `work` may be limited to pools, a JSON list; an empty one is no limit.
ALTER TABLE tokens ADD COLUMN pools TEXT NOT NULL DEFAULT '[]';

-- A hook says what its secret is made from. Secrets that were kept here before are encrypted by the
-- next server that starts, and the pages that had them are overwritten.
PRAGMA secure_delete = ON;

ALTER TABLE hooks RENAME TO hooks_before;

CREATE TABLE hooks (
    id         TEXT    NOT NULL PRIMARY KEY CHECK (id <> ''),
    url        TEXT    NOT NULL,
    secret     TEXT    NOT NULL CHECK (secret LIKE '%:_%'),
    kinds      TEXT    NOT NULL CHECK (kinds LIKE '[%]'),
    labels     TEXT    NOT NULL CHECK (labels LIKE '{%}'),
    dialect    TEXT,
    name       TEXT,
    enabled    INTEGER NOT NULL CHECK (enabled IN (0, 1)),
    created_at INTEGER NOT NULL,
    cursor     INTEGER NOT NULL CHECK (cursor >= 0)
) STRICT;

INSERT INTO hooks (id, url, secret, kinds, labels, dialect, name, enabled, created_at, cursor)
SELECT id, url, secret, kinds, labels, dialect, name, enabled, created_at, cursor
FROM hooks_before ORDER BY rowid;

DROP TABLE hooks_before;

PRAGMA secure_delete = OFF;
