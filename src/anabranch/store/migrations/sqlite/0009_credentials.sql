-- Credentials by name. `sealed` is encrypted with the key of the store, which is not in here.
CREATE TABLE credentials (
    name        TEXT    NOT NULL PRIMARY KEY CHECK (name <> ''),
    type        TEXT    NOT NULL CHECK (type <> ''),
    fields      TEXT    NOT NULL CHECK (fields LIKE '[%]'),
    sealed      TEXT    NOT NULL CHECK (sealed <> ''),
    key_id      TEXT    NOT NULL,
    version     INTEGER NOT NULL CHECK (version > 0),
    description TEXT    NOT NULL,
    created_at  INTEGER NOT NULL,
    created_by  TEXT    NOT NULL,
    updated_at  INTEGER NOT NULL,
    updated_by  TEXT    NOT NULL
) STRICT;
