-- Small JSON documents of features: schedules, triggers, aliases, saved views. One is written only in
-- the version that its writer has seen.
CREATE TABLE named_records (
    family     TEXT    NOT NULL CHECK (family <> ''),
    name       TEXT    NOT NULL CHECK (name <> ''),
    version    INTEGER NOT NULL CHECK (version >= 1),
    body       TEXT    NOT NULL,
    due        INTEGER,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (family, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX named_records_due ON named_records (family, due, name) WHERE due IS NOT NULL;
