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
-- Who has not seen the end of it says it again, and gets the same id.
INSERT INTO mailbox (partition, run, nonce, body, posted_at)
VALUES (coalesce((SELECT partition FROM heads WHERE run = :run), :partition), :run, :nonce, :body,
        :now)
ON CONFLICT (run, nonce) DO UPDATE SET nonce = excluded.nonce
RETURNING id

-- name: unanswered
SELECT id, run, body, posted_at, answer
FROM mailbox
WHERE answer IS NULL
ORDER BY id
LIMIT :limit

-- name: unanswered_in
SELECT id, run, body, posted_at, answer, partition
FROM mailbox
WHERE answer IS NULL
  AND partition IN (SELECT jsonb_array_elements_text(:owned::jsonb)::integer)
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

-- name: bytes
SELECT coalesce(sum(pg_total_relation_size(pg_class.oid)), 0)
FROM pg_class JOIN pg_namespace ON pg_namespace.oid = pg_class.relnamespace
WHERE pg_namespace.nspname = :schema AND pg_class.relkind = 'r'

-- name: lock_alone
SELECT pg_advisory_xact_lock(:key)

-- name: wait_a_moment_for_locks
-- Within this transaction, in the place of what the session says.
SET LOCAL lock_timeout = '300ms'

-- name: lock_beside_others
SELECT pg_advisory_xact_lock_shared(:key)
