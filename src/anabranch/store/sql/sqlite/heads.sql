-- Finding runs. The columns stand in the order of the fields of `Head`.

-- name: head
SELECT run, definition, name, dialect, status, seq, created_at, updated_at, next_wake, labels,
       parent, origin, finished, problems, reason
FROM heads
WHERE run = :run

-- name: unfinished
SELECT run, definition, name, dialect, status, seq, created_at, updated_at, next_wake, labels,
       parent, origin, finished, problems, reason
FROM heads
WHERE finished = 0 AND run > :after
ORDER BY run
LIMIT :limit

-- name: redrives
SELECT run, definition, name, dialect, status, seq, created_at, updated_at, next_wake, labels,
       parent, origin, finished, problems, reason
FROM heads
WHERE origin IN (SELECT value FROM json_each(:runs))
ORDER BY created_at DESC, run DESC

-- name: due
SELECT run, definition, name, dialect, status, seq, created_at, updated_at, next_wake, labels,
       parent, origin, finished, problems, reason
FROM heads
WHERE next_wake IS NOT NULL AND finished = 0 AND next_wake <= :now
ORDER BY next_wake, run
LIMIT :limit

-- name: list
-- A listing is `list`, the conditions that are asked for, and `list_order`: written this way the
-- planner sees only real conditions and can serve each combination by its best index.
SELECT run, definition, name, dialect, status, seq, created_at, updated_at, next_wake, labels,
       parent, origin, finished, problems, reason
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

-- name: list_redriven
AND EXISTS (SELECT 1 FROM heads AS redrive WHERE redrive.origin = heads.run)

-- name: list_not_redriven
AND NOT EXISTS (SELECT 1 FROM heads AS redrive WHERE redrive.origin = heads.run)

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

-- name: labelled
-- The same for runs with a label, newest first from the table of labels: as quick for one of a million
-- runs as for one of three. That they have it is asked as well, as are all other conditions.
SELECT run, definition, name, dialect, status, seq, created_at, updated_at, next_wake, labels,
       parent, origin, finished, problems, reason
FROM run_labels CROSS JOIN heads ON heads.run = labelled_run
WHERE label = :label AND labelled_at >= :labelled_after
  AND (labelled_at, labelled_run) < (:labelled_before, :labelled_before_run)

-- name: labelled_order
ORDER BY labelled_at DESC, labelled_run DESC
LIMIT :limit

-- name: count_labelled
-- How many there are, up to a limit.
SELECT count(*) FROM (SELECT 1 FROM run_labels WHERE label = :label LIMIT :limit)

-- name: count_named
SELECT count(*) FROM (SELECT 1 FROM heads WHERE name = :name LIMIT :limit)

-- name: runs_known
SELECT run, finished FROM heads WHERE run IN (SELECT value FROM json_each(:runs))

-- name: list_word
-- Labels are JSON: `{"a":"b","c":"d"}` is searched as two lines, `a=b` and `c=d`.
AND (run LIKE :searched ESCAPE '\' OR name LIKE :searched ESCAPE '\'
     OR reason LIKE :searched ESCAPE '\'
     OR (labels <> '{}' AND replace(replace(trim(labels, '{}"'), '":"', '='), '","', char(10))
         LIKE :searched ESCAPE '\'))

-- name: list_letters
AND (run GLOB :searched OR name GLOB :searched OR reason GLOB :searched
     OR (labels <> '{}' AND replace(replace(trim(labels, '{}"'), '":"', '='), '","', char(10))
         GLOB :searched))

-- name: slots
SELECT created_at / :width, status, count(*)
FROM heads
WHERE TRUE

-- name: slots_order
GROUP BY 1, 2

-- name: next_begun
SELECT min(created_at) FROM heads WHERE created_at >= :since

-- name: history
-- The runs of a slot as three lists, which SQLite writes and Python reads in half the time that
-- as many rows take. To sort the durations of each name takes SQLite longer than Python.
SELECT json_group_array(name), json_group_array(status),
       json_group_array(CASE WHEN finished THEN updated_at - created_at END)
FROM heads
WHERE created_at >= :since AND created_at < :until

-- name: unfinished_counts
SELECT status, count(*) FROM heads WHERE finished = 0 GROUP BY status

-- name: waiting_longest
SELECT run, definition, name, dialect, status, seq, created_at, updated_at, next_wake, labels,
       parent, origin, finished, problems, reason
FROM heads
WHERE finished = 0 AND (reason <> '' OR status IN ('waiting', 'paused', 'queued'))
ORDER BY updated_at, run
LIMIT :limit
