-- Runs are spread over partitions. A partition has one owner at a time; every commit checks its
-- epoch and moves its number, so rows of one partition are numbered without gaps, in the order in
-- which they become visible.
CREATE TABLE cluster (
    one        boolean NOT NULL PRIMARY KEY DEFAULT true CHECK (one),
    partitions integer NOT NULL CHECK (partitions BETWEEN 1 AND 4096),
    created_at bigint  NOT NULL
);

-- The lease of a server is that of all its partitions, by the clock of the database.
CREATE TABLE servers (
    id          text COLLATE "C"        NOT NULL PRIMARY KEY CHECK (id <> ''),
    name        text COLLATE "C"        NOT NULL,
    url         text COLLATE "C"        NOT NULL,
    version     text COLLATE "C"        NOT NULL,
    joined_at   timestamptz NOT NULL,
    lease_until timestamptz NOT NULL,
    draining    boolean     NOT NULL DEFAULT false,
    takes_share boolean     NOT NULL DEFAULT true
);

CREATE TABLE partitions (
    partition integer NOT NULL PRIMARY KEY,
    owner     text COLLATE "C",
    epoch     bigint  NOT NULL DEFAULT 0,
    number    bigint  NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

-- What a write that finds other rows than it should ends with: nothing of its transaction is kept.
CREATE FUNCTION require(fits boolean) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF fits THEN
        RETURN true;
    END IF;
    RAISE EXCEPTION 'anabranch: a row is not as this server believes; nothing is written'
        USING ERRCODE = 'AB001';
END
$$;

-- The partition of a run that is nobody's child, as servers work it out: the CRC-32 of its id. Only
-- what is left of runs without a row in `heads` needs it here.
CREATE FUNCTION partition_of(run text, partitions integer) RETURNS integer
LANGUAGE plpgsql STABLE AS $$
DECLARE
    content bytea := convert_to(run, 'UTF8');
    crc bigint := 4294967295;
BEGIN
    FOR at IN 0 .. length(content) - 1 LOOP
        crc := crc # get_byte(content, at);
        FOR bit IN 1 .. 8 LOOP
            crc := (crc >> 1) # (CASE WHEN crc & 1 = 1 THEN 3988292384 ELSE 0 END);
        END LOOP;
    END LOOP;
    RETURN (crc # 4294967295) % partitions;
END
$$;

-- The log is the truth. A row holds the events `last_seq - count + 1 … last_seq` of one run.
CREATE TABLE log (
    partition integer NOT NULL,
    number    bigint  NOT NULL,
    run       text COLLATE "C"    NOT NULL,
    last_seq  bigint  NOT NULL,
    count     integer NOT NULL CHECK (count >= 1),
    at        bigint  NOT NULL,
    events    bytea   NOT NULL,
    PRIMARY KEY (run, last_seq),
    CHECK (last_seq >= count)
);

CREATE UNIQUE INDEX log_in_order ON log (partition, number);

-- The index card of a run, written in the transaction of the events it summarises. Most moves touch
-- no column of an index: where the page has room for another version of each of its rows, no index is
-- written. With less room, thousands of runs that move together leave more pages behind, not fewer.
CREATE TABLE heads (
    run        text COLLATE "C"    NOT NULL PRIMARY KEY CHECK (run <> ''),
    partition  integer NOT NULL,
    definition text COLLATE "C"    NOT NULL,
    name       text COLLATE "C"    NOT NULL,
    dialect    text COLLATE "C"    NOT NULL,
    status     text COLLATE "C"    NOT NULL,
    seq        bigint  NOT NULL CHECK (seq >= 1),
    created_at bigint  NOT NULL,
    updated_at bigint  NOT NULL,
    next_wake  bigint,
    labels     text COLLATE "C"    NOT NULL,
    parent     text COLLATE "C",
    origin     text COLLATE "C",
    finished   boolean NOT NULL,
    problems   integer NOT NULL DEFAULT 0 CHECK (problems >= 0)
) WITH (fillfactor = 50);

CREATE INDEX heads_due ON heads (partition, next_wake, run)
WHERE next_wake IS NOT NULL AND NOT finished;
CREATE INDEX heads_unfinished ON heads (partition, run) WHERE NOT finished;
CREATE INDEX heads_newest ON heads (created_at, run);
CREATE INDEX heads_children ON heads (parent, created_at, run) WHERE parent IS NOT NULL;

-- The newest state of a run, never a part of its history: at most one, replaced at will.
CREATE TABLE snapshots (
    run   text COLLATE "C"   NOT NULL PRIMARY KEY,
    seq   bigint NOT NULL CHECK (seq >= 1),
    state bytea  NOT NULL
);

CREATE TABLE definitions (
    fingerprint text COLLATE "C"   NOT NULL PRIMARY KEY,
    dialect     text COLLATE "C"   NOT NULL,
    name        text COLLATE "C"   NOT NULL,
    source      text COLLATE "C"   NOT NULL,
    origin      text COLLATE "C"   NOT NULL,
    created_at  bigint NOT NULL
);

CREATE INDEX definitions_newest ON definitions (created_at, fingerprint);
CREATE INDEX definitions_of_name ON definitions (name, created_at, fingerprint);

-- Content by its own hash: a row never changes.
CREATE TABLE payloads (
    sha256  text COLLATE "C"  NOT NULL PRIMARY KEY CHECK (length(sha256) = 64),
    content bytea NOT NULL
);

-- Who needs a payload, and until when (0: without end).
CREATE TABLE holds (
    sha256 text COLLATE "C"   NOT NULL,
    run    text COLLATE "C"   NOT NULL,
    scope  text COLLATE "C"   NOT NULL CHECK (scope IN ('job', 'step', 'execution', 'workflow', 'permanent')),
    until  bigint NOT NULL CHECK (until >= 0),
    PRIMARY KEY (sha256, run, scope)
);

CREATE INDEX holds_of_run ON holds (run);
CREATE INDEX holds_over ON holds (until) WHERE until > 0;

-- Values that a run may use and nobody may see: never in the log, gone when the run has ended.
CREATE TABLE sealed (
    run   text COLLATE "C"  NOT NULL,
    key   text COLLATE "C"  NOT NULL,
    value bytea NOT NULL,
    PRIMARY KEY (run, key)
);

-- What other servers and commands ask of the owner of a partition.
CREATE TABLE mailbox (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    partition integer NOT NULL,
    run       text COLLATE "C"    NOT NULL,
    nonce     text COLLATE "C"    NOT NULL DEFAULT gen_random_uuid()::text,
    body      bytea   NOT NULL,
    posted_at bigint  NOT NULL,
    answer    bytea
);

CREATE INDEX mailbox_unanswered ON mailbox (partition, id) WHERE answer IS NULL;
CREATE UNIQUE INDEX mailbox_once ON mailbox (run, nonce);

-- Who may ask: only the hash of a secret is kept, and a revoked token stays for the record.
CREATE TABLE tokens (
    id           text COLLATE "C"   NOT NULL PRIMARY KEY CHECK (id <> ''),
    digest       text COLLATE "C"   NOT NULL CHECK (length(digest) = 64),
    name         text COLLATE "C"   NOT NULL,
    scopes       text COLLATE "C"   NOT NULL CHECK (scopes <> ''),
    created_at   bigint NOT NULL,
    expires_at   bigint,
    last_used_at bigint,
    revoked_at   bigint,
    pools        text COLLATE "C"   NOT NULL DEFAULT '[]'
);

-- Who is signed in at a browser, at whichever server: only the hash of the cookie is kept.
CREATE TABLE browser_sessions (
    key   text COLLATE "C" NOT NULL PRIMARY KEY CHECK (length(key) = 64),
    token text COLLATE "C" NOT NULL,
    csrf  text COLLATE "C" NOT NULL,
    until bigint NOT NULL
);

CREATE INDEX browser_sessions_of_token ON browser_sessions (token, until);

-- Who asked for what, and what came of it. Rows are only ever added, and removed when they are old.
CREATE TABLE audit (
    number  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at      bigint NOT NULL,
    actor   text COLLATE "C"   NOT NULL,
    action  text COLLATE "C"   NOT NULL,
    subject text COLLATE "C"   NOT NULL,
    outcome text COLLATE "C"   NOT NULL,
    address text COLLATE "C"   NOT NULL,
    detail  text COLLATE "C"   NOT NULL
);

CREATE INDEX audit_of_subject ON audit (subject, number) WHERE subject <> '';
CREATE INDEX audit_by_time ON audit (at);

-- What was answered to a request with a key, so that a repeat gets the same and does nothing.
CREATE TABLE idempotency (
    actor      text COLLATE "C"    NOT NULL,
    key        text COLLATE "C"    NOT NULL CHECK (key <> ''),
    body       text COLLATE "C"    NOT NULL,
    holder     text COLLATE "C"    NOT NULL,
    expires_at bigint  NOT NULL,
    status     integer,
    answer     bytea,
    PRIMARY KEY (actor, key),
    CHECK ((status IS NULL) = (answer IS NULL))
);

CREATE INDEX idempotency_over ON idempotency (expires_at);

-- Whom to tell of what, and how far each partition was looked at.
CREATE TABLE hooks (
    id         text COLLATE "C"    NOT NULL PRIMARY KEY CHECK (id <> ''),
    url        text COLLATE "C"    NOT NULL,
    secret     text COLLATE "C"    NOT NULL CHECK (secret LIKE '%:_%'),
    kinds      text COLLATE "C"    NOT NULL CHECK (kinds LIKE '[%]'),
    labels     text COLLATE "C"    NOT NULL CHECK (labels LIKE '{%}'),
    dialect    text COLLATE "C",
    name       text COLLATE "C",
    enabled    boolean NOT NULL,
    created_at bigint  NOT NULL
);

CREATE TABLE hook_cursors (
    hook      text COLLATE "C" NOT NULL REFERENCES hooks (id) ON DELETE CASCADE,
    partition integer NOT NULL,
    position  bigint  NOT NULL CHECK (position >= 0),
    PRIMARY KEY (hook, partition)
);

-- What was found for a hook. Only the one of a run whose turn it is has an instant in `due`.
CREATE TABLE deliveries (
    hook        text COLLATE "C"    NOT NULL,
    run         text COLLATE "C"    NOT NULL,
    seq         bigint  NOT NULL CHECK (seq >= 1),
    kind        text COLLATE "C"    NOT NULL,
    body        bytea   NOT NULL,
    found_at    bigint  NOT NULL,
    state       text COLLATE "C"    NOT NULL CHECK (state IN ('pending', 'done', 'dead')),
    attempts    integer NOT NULL CHECK (attempts >= 0),
    due         bigint,
    last_at     bigint,
    last_status integer,
    last_error  text COLLATE "C"    NOT NULL,
    PRIMARY KEY (hook, run, seq),
    CHECK (state = 'pending' OR due IS NULL)
);

CREATE INDEX deliveries_due ON deliveries (hook, due, run) WHERE due IS NOT NULL;
CREATE INDEX deliveries_waiting ON deliveries (hook, run, seq, found_at) WHERE state = 'pending';
CREATE INDEX deliveries_dead ON deliveries (hook, found_at, run, seq) WHERE state = 'dead';
CREATE INDEX deliveries_newest ON deliveries (hook, found_at, run, seq);
CREATE INDEX deliveries_over ON deliveries (last_at) WHERE state <> 'pending';

-- Credentials by name. `sealed` is encrypted with the key of the store, which is not in here.
CREATE TABLE credentials (
    name        text COLLATE "C"    NOT NULL PRIMARY KEY CHECK (name <> ''),
    type        text COLLATE "C"    NOT NULL CHECK (type <> ''),
    fields      text COLLATE "C"    NOT NULL CHECK (fields LIKE '[%]'),
    sealed      text COLLATE "C"    NOT NULL CHECK (sealed <> ''),
    key_id      text COLLATE "C"    NOT NULL,
    version     integer NOT NULL CHECK (version > 0),
    description text COLLATE "C"    NOT NULL,
    created_at  bigint  NOT NULL,
    created_by  text COLLATE "C"    NOT NULL,
    updated_at  bigint  NOT NULL,
    updated_by  text COLLATE "C"    NOT NULL
);

-- The catalog: definitions by path, in versions. Ids are never given out twice.
CREATE TABLE catalog (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    path        text COLLATE "C"    NOT NULL CHECK (path <> ''),
    version     integer NOT NULL CHECK (version > 0),
    fingerprint text COLLATE "C"    NOT NULL CHECK (fingerprint <> ''),
    name        text COLLATE "C"    NOT NULL,
    dialect     text COLLATE "C"    NOT NULL,
    created_at  bigint  NOT NULL,
    created_by  text COLLATE "C"    NOT NULL,
    UNIQUE (path, version)
);

-- Sessions are numbered by owner. A row outlives its run: no number is ever given out twice.
CREATE TABLE session_numbers (
    owner  text COLLATE "C"   NOT NULL CHECK (owner <> ''),
    number bigint NOT NULL CHECK (number >= 1),
    run    text COLLATE "C"   NOT NULL CHECK (run <> ''),
    PRIMARY KEY (owner, number)
);

-- Who may read what is encrypted under a resource id (`rid`); the wrapped key is theirs to open.
CREATE TABLE grants (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    rid        text COLLATE "C"    NOT NULL,
    scope      integer NOT NULL CHECK (scope IN (1, 2)),
    grantee    text COLLATE "C"    NOT NULL CHECK (grantee <> ''),
    owner      text COLLATE "C"    NOT NULL CHECK (owner <> ''),
    rights     integer NOT NULL CHECK (rights BETWEEN 0 AND 7),
    enc_dek    text COLLATE "C"    NOT NULL,
    expires_at bigint  NOT NULL,
    is_owner   integer NOT NULL CHECK (is_owner IN (0, 1)),
    ref_addr   text COLLATE "C"    NOT NULL,
    session    text COLLATE "C"    NOT NULL,
    UNIQUE (rid, scope, grantee)
);

CREATE INDEX grants_of_grantee ON grants (grantee, id);
CREATE INDEX grants_of_owner ON grants (owner, id);
