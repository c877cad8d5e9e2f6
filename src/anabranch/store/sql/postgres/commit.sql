-- What one turn writes, a statement for each kind of row, its values as arrays. Rows are found by
-- their primary key: conditions are written so that the planner can use no other, partial index.

-- name: move_partitions
-- Fewer rows than partitions when one of them has another owner or epoch, or was moved by others. The
-- owner is a column: a condition on it alone would have the planner begin with all partitions of this
-- server, and compare each with each.
UPDATE partitions AS at
SET number = moved.number
FROM unnest(%s::integer[], %s::text[], %s::bigint[], %s::bigint[], %s::bigint[])
    AS moved (partition, owner, epoch, before, number)
WHERE at.partition = moved.partition AND at.owner = moved.owner AND at.epoch = moved.epoch
  AND at.number = moved.before

-- name: own_for_now
-- A command writes to a partition that no server owns; the row is locked until its commit.
UPDATE partitions SET owner = %s, epoch = epoch + 1
WHERE partition = %s
  AND (owner IS NULL OR NOT EXISTS (SELECT 1 FROM servers WHERE servers.id = partitions.owner))
RETURNING epoch, number

-- name: disown
UPDATE partitions SET owner = NULL WHERE partition = %s AND owner = %s

-- name: append_records
INSERT INTO log (partition, number, run, last_seq, count, at, events)
SELECT * FROM unnest(%s::integer[], %s::bigint[], %s::text[], %s::bigint[], %s::integer[],
                     %s::bigint[], %s::bytea[])

-- name: create_heads
-- Fewer rows when a run exists.
INSERT INTO heads (run, definition, name, dialect, status, seq, created_at, updated_at, next_wake,
                   labels, parent, origin, finished, problems, reason, partition)
SELECT * FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::bigint[],
                     %s::bigint[], %s::bigint[], %s::bigint[], %s::text[], %s::text[], %s::text[],
                     %s::boolean[], %s::integer[], %s::text[], %s::integer[])
ON CONFLICT (run) DO NOTHING

-- name: label_runs
-- Once a run, since it keeps its labels.
INSERT INTO run_labels (label, labelled_at, labelled_run)
SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::text[])
ON CONFLICT DO NOTHING

-- name: move_heads
-- Fewer rows when another writer was first, a run has finished, or it is not in the partition whose
-- number was moved for it.
UPDATE heads
SET definition = moved.definition, dialect = moved.dialect, status = moved.status,
    seq = moved.seq, updated_at = moved.updated_at, next_wake = moved.next_wake,
    problems = moved.problems, reason = moved.reason
FROM unnest(%s::text[], %s::text[], %s::text[], %s::bigint[], %s::bigint[], %s::bigint[],
            %s::integer[], %s::text[], %s::text[], %s::bigint[], %s::text[], %s::text[],
            %s::bigint[], %s::text[], %s::text[], %s::integer[])
    AS moved (definition, dialect, status, seq, updated_at, next_wake, problems, reason, run,
              expected, name, labels, created_at, parent, origin, partition)
WHERE heads.run = moved.run AND heads.seq = moved.expected AND heads.finished::integer = 0
  AND heads.partition = moved.partition
  AND heads.name || '' = moved.name AND heads.labels = moved.labels
  AND heads.created_at = moved.created_at AND heads.parent IS NOT DISTINCT FROM moved.parent
  AND heads.origin IS NOT DISTINCT FROM moved.origin

-- name: finish_heads
UPDATE heads
SET definition = moved.definition, dialect = moved.dialect, status = moved.status,
    seq = moved.seq, updated_at = moved.updated_at, next_wake = moved.next_wake,
    problems = moved.problems, reason = moved.reason, finished = true
FROM unnest(%s::text[], %s::text[], %s::text[], %s::bigint[], %s::bigint[], %s::bigint[],
            %s::integer[], %s::text[], %s::text[], %s::bigint[], %s::text[], %s::text[],
            %s::bigint[], %s::text[], %s::text[], %s::integer[])
    AS moved (definition, dialect, status, seq, updated_at, next_wake, problems, reason, run,
              expected, name, labels, created_at, parent, origin, partition)
WHERE heads.run = moved.run AND heads.seq = moved.expected AND heads.finished::integer = 0
  AND heads.partition = moved.partition
  AND heads.name || '' = moved.name AND heads.labels = moved.labels
  AND heads.created_at = moved.created_at AND heads.parent IS NOT DISTINCT FROM moved.parent
  AND heads.origin IS NOT DISTINCT FROM moved.origin

-- name: let_recover
-- A run that only waits stays in the store when a server opens it.
UPDATE heads SET status = 'running'
FROM unnest(%s::text[]) AS given (run)
WHERE heads.run = given.run AND heads.status || '' = 'waiting'

-- name: replace_snapshots
INSERT INTO snapshots (run, seq, state)
SELECT * FROM unnest(%s::text[], %s::bigint[], %s::bytea[])
ON CONFLICT (run) DO UPDATE SET seq = excluded.seq, state = excluded.state

-- name: put_payloads
INSERT INTO payloads (sha256, content)
SELECT * FROM unnest(%s::text[], %s::bytea[])
ON CONFLICT (sha256) DO NOTHING

-- name: put_payload
INSERT INTO payloads (sha256, content) VALUES (:sha256, :content)
ON CONFLICT (sha256) DO NOTHING

-- name: answer_messages
-- Fewer rows when one is answered already or was never posted.
UPDATE mailbox SET answer = given.answer
FROM unnest(%s::bytea[], %s::bigint[]) AS given (answer, id)
WHERE mailbox.id = given.id AND num_nulls(mailbox.answer) = 1

-- name: seal
INSERT INTO sealed (run, key, value)
SELECT * FROM unnest(%s::text[], %s::text[], %s::bytea[])
ON CONFLICT (run, key) DO UPDATE SET value = excluded.value

-- name: unseal
DELETE FROM sealed WHERE run = ANY(%s::text[])

-- name: put_answers
INSERT INTO idempotency (actor, key, body, holder, expires_at, status, answer)
SELECT * FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::bigint[], %s::integer[],
                     %s::bytea[])
ON CONFLICT (actor, key) DO UPDATE
SET body = excluded.body, holder = excluded.holder, expires_at = excluded.expires_at,
    status = excluded.status, answer = excluded.answer

-- name: add_audits
INSERT INTO audit (at, actor, action, subject, outcome, address, detail)
SELECT * FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[],
                     %s::text[])

-- name: post_messages
-- To runs of other partitions; their owners take them.
INSERT INTO mailbox (partition, run, body, posted_at)
SELECT coalesce(heads.partition, said.partition), said.run, said.body, said.posted_at
FROM unnest(%s::text[], %s::bytea[], %s::bigint[], %s::integer[])
    AS said (run, body, posted_at, partition)
LEFT JOIN heads ON heads.run = said.run
