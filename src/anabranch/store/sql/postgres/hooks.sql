-- The log of all runs in one order, webhooks and their deliveries.

-- name: feed
SELECT number, run, last_seq - count + 1, count, at, events
FROM log
WHERE partition = :partition AND number > :after
ORDER BY number
LIMIT :limit

-- name: probe_room
-- Is rolled back: it is only asked whether it could be.
INSERT INTO mailbox (partition, run, body, posted_at) VALUES (-1, '', ''::bytea, 0)

-- name: positions
SELECT partition, number FROM partitions

-- name: runs_after
SELECT DISTINCT run FROM log WHERE partition = :partition AND number > :position

-- name: run_counts
SELECT status, dialect, count(*) FROM heads GROUP BY status, dialect ORDER BY status, dialect

-- name: add_hook
WITH added AS (
    INSERT INTO hooks (id, url, secret, kinds, labels, dialect, name, enabled, created_at)
    VALUES (:id, :url, :secret, :kinds, :labels, :dialect, :name, :enabled, :created_at)
    RETURNING id
)
INSERT INTO hook_cursors (hook, partition, position)
SELECT added.id, partitions.partition, CASE partitions.partition WHEN 0 THEN :cursor ELSE 0 END
FROM added, partitions

-- name: hook_from_now
UPDATE hook_cursors SET position = partitions.number
FROM partitions
WHERE hook_cursors.hook = :id AND partitions.partition = hook_cursors.partition

-- name: cursors
SELECT partition, position FROM hook_cursors WHERE hook = :id

-- name: hook
SELECT id, url, secret, kinds, labels, dialect, name, enabled, created_at,
       (SELECT position FROM hook_cursors WHERE hook = hooks.id AND partition = 0)
FROM hooks WHERE id = :id

-- name: hooks
SELECT id, url, secret, kinds, labels, dialect, name, enabled, created_at,
       (SELECT position FROM hook_cursors WHERE hook = hooks.id AND partition = 0)
FROM hooks ORDER BY created_at, id

-- name: change_hook
UPDATE hooks
SET url = :url, secret = :secret, kinds = :kinds, labels = :labels, dialect = :dialect,
    name = :name, enabled = :enabled
WHERE id = :id

-- name: drop_hook
DELETE FROM hooks WHERE id = :id

-- name: drop_deliveries
DELETE FROM deliveries WHERE hook = :id

-- name: advance_hook
-- Zero rows when another server was first, or the hook is gone.
UPDATE hook_cursors SET position = :to
WHERE hook = :id AND partition = :partition AND position = :seen

-- name: add_delivery
INSERT INTO deliveries (hook, run, seq, kind, body, found_at, state, attempts, due, last_error)
VALUES (:hook, :run, :seq, :kind, :body, :found_at, 'pending', 0,
        CASE WHEN EXISTS (SELECT 1 FROM deliveries AS other
                          WHERE other.hook = :hook AND other.run = :run
                            AND other.state = 'pending')
             THEN NULL ELSE :found_at END,
        '')
ON CONFLICT (hook, run, seq) DO NOTHING

-- name: due_deliveries
SELECT hook, run, seq, kind, body, found_at, state, attempts, due, last_at, last_status, last_error
FROM deliveries
WHERE hook = :hook AND due IS NOT NULL AND due <= :now
ORDER BY due, run
LIMIT :limit

-- name: due_deliveries_in
-- With the partition of the run, which one that was purged has none of: what is left of it is sent by
-- the server whose partition its id alone leads to.
SELECT hook, run, seq, kind, body, found_at, state, attempts, due, last_at, last_status, last_error,
       place
FROM (SELECT *, (SELECT partition FROM heads WHERE heads.run = deliveries.run) AS place
      FROM deliveries) AS placed
WHERE hook = :hook AND due IS NOT NULL AND due <= :now
  AND coalesce(place, partition_of(run, :partitions))
      IN (SELECT jsonb_array_elements_text(:owned::jsonb)::integer)
ORDER BY due, run
LIMIT :limit

-- name: settle_delivery
UPDATE deliveries
SET state = :state, attempts = :attempts, due = :due, last_at = :last_at,
    last_status = :last_status, last_error = :last_error
WHERE hook = :hook AND run = :run AND seq = :seq AND state = 'pending'
  AND attempts = :attempts - 1

-- name: let_next
-- Nothing is let go while another one of the run is out.
UPDATE deliveries SET due = :now
WHERE hook = :hook AND run = :run
  AND seq = (SELECT min(seq) FROM deliveries
             WHERE hook = :hook AND run = :run AND state = 'pending')
  AND NOT EXISTS (SELECT 1 FROM deliveries AS out
                  WHERE out.hook = :hook AND out.run = :run AND out.state = 'pending'
                    AND out.due IS NOT NULL)

-- name: redeliver
UPDATE deliveries SET state = 'pending', due = :now, found_at = :now, attempts = 0
WHERE hook = :hook AND run = :run AND seq = :seq AND state <> 'pending'

-- name: hurry
-- Only one that waits for its next attempt.
UPDATE deliveries SET due = :now
WHERE hook = :hook AND run = :run AND seq = :seq AND state = 'pending' AND due > :now

-- name: hurry_all
UPDATE deliveries SET due = :now WHERE hook = :hook AND due > :now

-- name: revive_dead
UPDATE deliveries SET state = 'pending', due = NULL, found_at = :now, attempts = 0
WHERE state = 'dead'
  AND ctid IN (SELECT ctid FROM deliveries WHERE hook = :hook AND state = 'dead'
               ORDER BY found_at, run, seq LIMIT :limit)

-- name: let_first
-- Of every run of which none is out, the first.
UPDATE deliveries SET due = :now
WHERE hook = :hook AND state = 'pending' AND due IS NULL
  AND NOT EXISTS (SELECT 1 FROM deliveries AS other
                  WHERE other.hook = :hook AND other.run = deliveries.run
                    AND other.state = 'pending'
                    AND (other.due IS NOT NULL OR other.seq < deliveries.seq))

-- name: delivery
SELECT hook, run, seq, kind, body, found_at, state, attempts, due, last_at, last_status, last_error
FROM deliveries WHERE hook = :hook AND run = :run AND seq = :seq

-- name: list_deliveries
-- With the conditions that are asked for, and `list_deliveries_order`.
SELECT hook, run, seq, kind, body, found_at, state, attempts, due, last_at, last_status, last_error
FROM deliveries
WHERE hook = :hook

-- name: list_deliveries_pending
AND state = 'pending'

-- name: list_deliveries_done
AND state = 'done'

-- name: list_deliveries_dead
AND state = 'dead'

-- name: list_deliveries_run
AND run = :run

-- name: list_deliveries_before
AND (found_at, run, seq) < (:before_at, :before_run, :before_seq)

-- name: list_deliveries_order
ORDER BY found_at DESC, run DESC, seq DESC
LIMIT :limit

-- name: backlog
-- Each number from an index of its own: what was delivered is not looked at.
SELECT hooks.id,
       (SELECT count(*) FROM deliveries WHERE hook = hooks.id AND state = 'pending'),
       (SELECT count(*) FROM deliveries WHERE hook = hooks.id AND state = 'dead'),
       (SELECT min(found_at) FROM deliveries WHERE hook = hooks.id AND state = 'pending')
FROM hooks

-- name: forget_deliveries
-- But for those that are just being made due once more. It waits for no row, in whatever order others
-- lock theirs.
DELETE FROM deliveries WHERE ctid IN (
    SELECT ctid FROM deliveries WHERE state <> 'pending' AND last_at < :before
    ORDER BY last_at, hook, run, seq LIMIT :limit
    FOR UPDATE SKIP LOCKED)
