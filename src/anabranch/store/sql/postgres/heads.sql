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
WHERE NOT finished AND run > :after
ORDER BY run
LIMIT :limit

-- name: unfinished_in
SELECT run, definition, name, dialect, status, seq, created_at, updated_at, next_wake, labels,
       parent, origin, finished, problems, partition
FROM heads
WHERE NOT finished AND run > :after
  AND partition IN (SELECT jsonb_array_elements_text(:partitions::jsonb)::integer)
ORDER BY run
LIMIT :limit

-- name: due
SELECT run, definition, name, dialect, status, seq, created_at, updated_at, next_wake, labels,
       parent, origin, finished, problems
FROM heads
WHERE next_wake IS NOT NULL AND NOT finished AND next_wake <= :now
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
AND status IN (SELECT jsonb_array_elements_text(:statuses::jsonb))

-- name: list_dialect
AND dialect = :dialect

-- name: list_name
AND name = :name

-- name: list_labels
AND labels::jsonb @> :labels::jsonb

-- name: list_run_prefix
AND run >= :run_prefix AND starts_with(run, :run_prefix)

-- name: list_parent
AND parent = :parent

-- name: list_before
AND (created_at, run) < (:before_at, :before_run)

-- name: list_ended_before
AND finished AND updated_at < :ended_before

-- name: list_created_after
AND created_at >= :created_after

-- name: list_created_before
AND created_at < :created_before

-- name: list_order
ORDER BY created_at DESC, run DESC
LIMIT :limit
