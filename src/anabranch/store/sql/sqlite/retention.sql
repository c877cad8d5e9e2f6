-- What is kept for how long. Holds on the same payload by the same run and scope are one; the longer
-- of them counts, and 0 is longer than anything.

-- name: hold
INSERT INTO holds (sha256, run, scope, until) VALUES (:sha256, :run, :scope, :until)
ON CONFLICT (sha256, run, scope) DO UPDATE
SET until = CASE WHEN until = 0 OR excluded.until = 0 THEN 0 ELSE max(until, excluded.until) END

-- name: end_steps
UPDATE holds SET until = CASE WHEN until = 0 THEN :now ELSE min(until, :now) END
WHERE run = :run AND scope IN ('job', 'step')

-- name: end_execution
UPDATE holds SET until = CASE WHEN until = 0 THEN :until ELSE min(until, :until) END
WHERE run = :run AND scope = 'execution'

-- name: over
SELECT sha256, run, scope FROM holds
WHERE until > 0 AND until <= :now
ORDER BY until, sha256, run, scope
LIMIT :limit

-- name: drop_hold
DELETE FROM holds WHERE sha256 = :sha256 AND run = :run AND scope = :scope

-- name: finished_of
SELECT heads.run FROM json_each(:runs) AS wanted CROSS JOIN heads ON heads.run = wanted.value
WHERE heads.finished = 1

-- name: held_by
SELECT sha256, run, scope FROM holds
WHERE run IN (SELECT value FROM json_each(:runs))

-- name: held
SELECT sha256, run, scope, until FROM holds
WHERE run = :run AND sha256 > :after
ORDER BY sha256, scope
LIMIT :limit

-- name: holds_payload
SELECT 1 FROM holds WHERE sha256 = :sha256 AND run IN (SELECT value FROM json_each(:runs)) LIMIT 1

-- name: unheld
SELECT count(*), coalesce(sum(length(content)), 0) FROM payloads
WHERE sha256 IN (SELECT value FROM json_each(:hashes))
  AND NOT EXISTS (SELECT 1 FROM holds WHERE holds.sha256 = payloads.sha256)

-- name: drop_unheld
DELETE FROM payloads
WHERE sha256 IN (SELECT value FROM json_each(:hashes))
  AND NOT EXISTS (SELECT 1 FROM holds WHERE holds.sha256 = payloads.sha256)

-- name: weight
SELECT
    (SELECT coalesce(sum(length(events)), 0) FROM log
     WHERE run IN (SELECT value FROM json_each(:runs))),
    (SELECT coalesce(sum(length(state)), 0) FROM snapshots
     WHERE run IN (SELECT value FROM json_each(:runs)))

-- name: forget_log
DELETE FROM log WHERE run IN (SELECT value FROM json_each(:runs))

-- name: forget_snapshots
DELETE FROM snapshots WHERE run IN (SELECT value FROM json_each(:runs))

-- name: forget_messages
DELETE FROM mailbox WHERE run IN (SELECT value FROM json_each(:runs))

-- name: forget_heads
DELETE FROM heads WHERE run IN (SELECT value FROM json_each(:runs))

-- name: labels_of
SELECT run, created_at, labels FROM heads
WHERE run IN (SELECT value FROM json_each(:runs)) AND labels <> '{}'

-- name: forget_label
DELETE FROM run_labels
WHERE label = :label AND labelled_at = :labelled_at AND labelled_run = :labelled_run
