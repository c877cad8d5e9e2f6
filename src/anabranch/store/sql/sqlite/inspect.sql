-- What `store check` reads: everything, once.

-- name: inspect_heads
SELECT rowid, run, definition, name, dialect, status, seq, created_at, updated_at, next_wake,
       labels, parent, origin, finished, problems, reason
FROM heads
WHERE rowid > :after
ORDER BY rowid
LIMIT :limit

-- name: inspect_definitions
SELECT fingerprint, dialect, name, source, origin, created_at FROM definitions

-- name: inspect_headless
SELECT DISTINCT 'log', log.run FROM log
WHERE NOT EXISTS (SELECT 1 FROM heads WHERE heads.run = log.run)
UNION ALL
SELECT 'snapshots', snapshots.run FROM snapshots
WHERE NOT EXISTS (SELECT 1 FROM heads WHERE heads.run = snapshots.run)
UNION ALL
SELECT DISTINCT 'sealed', sealed.run FROM sealed
WHERE NOT EXISTS (SELECT 1 FROM heads WHERE heads.run = sealed.run)
  -- A run that a message asks for begins with what was sealed beforehand.
  AND NOT EXISTS (SELECT 1 FROM mailbox WHERE mailbox.run = sealed.run AND mailbox.answer IS NULL)
LIMIT :limit

-- name: inspect_holds
SELECT holds.run, holds.sha256 FROM holds
WHERE NOT EXISTS (SELECT 1 FROM payloads WHERE payloads.sha256 = holds.sha256)
LIMIT :limit

-- name: inspect_disagreements
SELECT 'webhook', '', 'webhook ' || hooks.id || ' has looked up to position ' || hooks.cursor
       || ', and the log ends at ' || last.position
FROM hooks, (SELECT coalesce(max(seq), 0) AS position FROM sqlite_sequence WHERE name = 'log') AS last
WHERE hooks.cursor > last.position
UNION ALL
SELECT DISTINCT 'webhook', run, 'it has deliveries to webhook ' || hook || ', which does not exist'
FROM deliveries
WHERE NOT EXISTS (SELECT 1 FROM hooks WHERE hooks.id = deliveries.hook)
UNION ALL
SELECT 'webhook', run, 'of its deliveries that wait for webhook ' || hook || ' none is due'
FROM deliveries
WHERE state = 'pending'
GROUP BY hook, run
HAVING count(due) = 0
LIMIT :limit

-- name: inspect_records
SELECT family, name, version, body, due, updated_at FROM named_records ORDER BY family, name
