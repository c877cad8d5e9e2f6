-- Definitions, payloads, the mailbox and the numbers for people.

-- name: put_definition
INSERT INTO definitions (fingerprint, dialect, name, source, origin, created_at)
VALUES (:fingerprint, :dialect, :name, :source, :origin, :created_at)
ON CONFLICT (fingerprint) DO NOTHING

-- name: definition
SELECT fingerprint, dialect, name, source, origin, created_at
FROM definitions
WHERE fingerprint = :fingerprint

-- name: list_definitions
-- With `list_name` and `list_dialect`, as for runs.
SELECT fingerprint, dialect, name, origin, created_at
FROM definitions
WHERE TRUE

-- name: list_definitions_before
AND (created_at, fingerprint) < (:before_at, :before)

-- name: list_definitions_order
ORDER BY created_at DESC, fingerprint DESC
LIMIT :limit

-- name: payload
SELECT content FROM payloads WHERE sha256 = :sha256

-- name: sealed
SELECT key, value FROM sealed WHERE run = :run ORDER BY key

-- name: post
INSERT INTO mailbox (run, body, posted_at) VALUES (:run, :body, :now) RETURNING id

-- name: unanswered
SELECT id, run, body, posted_at, answer
FROM mailbox
WHERE answer IS NULL
ORDER BY id
LIMIT :limit

-- name: message
SELECT id, run, body, posted_at, answer FROM mailbox WHERE id = :id

-- name: count_runs
SELECT status, finished, count(*), sum(seq) FROM heads GROUP BY status, finished

-- name: count_rows
SELECT
    (SELECT count(*) FROM log),
    (SELECT count(*) FROM snapshots),
    (SELECT count(*) FROM definitions),
    (SELECT count(*) FROM payloads),
    (SELECT count(*) FROM holds),
    (SELECT count(*) FROM mailbox),
    (SELECT count(*) FROM mailbox WHERE answer IS NULL)

-- name: glance
-- Touches the root and the last page of every table: gross damage shows at once.
SELECT
    (SELECT max(rowid) FROM log),
    (SELECT max(rowid) FROM heads),
    (SELECT max(rowid) FROM snapshots),
    (SELECT max(rowid) FROM definitions),
    (SELECT max(rowid) FROM payloads),
    (SELECT max(rowid) FROM holds),
    (SELECT max(rowid) FROM mailbox),
    (SELECT max(rowid) FROM sealed)
