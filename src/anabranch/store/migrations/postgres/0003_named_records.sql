-- Small JSON documents of features: schedules, triggers, aliases, saved views. One is written only in
-- the version that its writer has seen.
CREATE TABLE named_records (
    family     text COLLATE "C" NOT NULL CHECK (family <> ''),
    name       text COLLATE "C" NOT NULL CHECK (name <> ''),
    version    bigint NOT NULL CHECK (version >= 1),
    body       text COLLATE "C" NOT NULL,
    due        bigint,
    updated_at bigint NOT NULL,
    PRIMARY KEY (family, name)
);

CREATE INDEX named_records_due ON named_records (family, due, name) WHERE due IS NOT NULL;
