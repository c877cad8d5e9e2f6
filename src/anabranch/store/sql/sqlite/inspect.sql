-- What `store check` reads: everything, once.

-- name: inspect_heads
SELECT rowid, run, definition, name, dialect, status, seq, created_at, updated_at, next_wake,
       labels, parent, origin, finished, problems
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
LIMIT :limit

-- name: inspect_holds
SELECT holds.run, holds.sha256 FROM holds
WHERE NOT EXISTS (SELECT 1 FROM payloads WHERE payloads.sha256 = holds.sha256)
LIMIT :limit
