-- Finding runs. The columns stand in the order of the fields of `Head`.

-- name: head
SELECT run, definition, name, dialect, status, seq, created_at, updated_at, next_wake, labels,
       parent, origin, finished, problems
FROM heads
WHERE run = :run

-- name: unfinished
SELECT run, definition, name, dialect, status, seq, created_at, updated_at, next_wake, labels,
       parent, origin, finished, problems
FROM heads
WHERE finished = 0 AND run > :after
ORDER BY run
LIMIT :limit

-- name: due
SELECT run, definition, name, dialect, status, seq, created_at, updated_at, next_wake, labels,
       parent, origin, finished, problems
FROM heads
WHERE next_wake IS NOT NULL AND finished = 0 AND next_wake <= :now
ORDER BY next_wake, run
LIMIT :limit

-- name: list
-- A listing is `list`, the conditions that are asked for, and `list_order`: written this way the
-- planner sees only real conditions and can serve each combination by its best index.
SELECT run, definition, name, dialect, status, seq, created_at, updated_at, next_wake, labels,
       parent, origin, finished, problems
FROM heads
WHERE TRUE

-- name: list_statuses
AND status IN (SELECT value FROM json_each(:statuses))

-- name: list_dialect
AND dialect = :dialect

-- name: list_name
AND name = :name

-- name: list_labels
AND NOT EXISTS (
    SELECT 1 FROM json_each(:labels) AS wanted
    WHERE NOT EXISTS (
        SELECT 1 FROM json_each(heads.labels) AS had
        WHERE had.key = wanted.key AND had.value = wanted.value))

-- name: list_run_prefix
AND run >= :run_prefix AND run < :run_prefix || char(0x10FFFF)

-- name: list_parent
AND parent = :parent

-- name: list_before
AND (created_at, run) < (:before_at, :before_run)

-- name: list_ended_before
AND finished = 1 AND updated_at < :ended_before

-- name: list_created_after
AND created_at >= :created_after

-- name: list_created_before
AND created_at < :created_before

-- name: list_order
ORDER BY created_at DESC, run DESC
LIMIT :limit
