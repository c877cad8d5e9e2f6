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
WHERE NOT finished AND run > :after
ORDER BY run
LIMIT :limit

-- name: unfinished_in
SELECT run, definition, name, dialect, status, seq, created_at, updated_at, next_wake, labels,
       parent, origin, finished, problems, reason, partition
FROM heads
WHERE NOT finished AND run > :after
  AND partition IN (SELECT jsonb_array_elements_text(:partitions::jsonb)::integer)
ORDER BY run
LIMIT :limit

-- name: redrives
SELECT run, definition, name, dialect, status, seq, created_at, updated_at, next_wake, labels,
       parent, origin, finished, problems, reason
FROM heads
WHERE origin IN (SELECT jsonb_array_elements_text(:runs::jsonb))
ORDER BY created_at DESC, run DESC

-- name: due
SELECT run, definition, name, dialect, status, seq, created_at, updated_at, next_wake, labels,
       parent, origin, finished, problems, reason
FROM heads
WHERE next_wake IS NOT NULL AND NOT finished AND next_wake <= :now
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
AND status IN (SELECT jsonb_array_elements_text(:statuses::jsonb))

-- name: list_dialect
AND dialect = :dialect

-- name: list_name
AND name = :name

-- name: list_labels
-- As a CASE: the planner takes a bare `@>` for something that one row in a hundred meets, and would
-- rather sort all runs of a label than read them in their order.
-- In their text, as they are written: jsonb takes no zero byte, and one label with it would break the
-- list for everybody. Quotes inside of a text are escaped, so a pair stands there only as a pair.
AND CASE WHEN NOT EXISTS (
    SELECT 1 FROM jsonb_array_elements_text(:label_pairs::jsonb) AS wanted (pair)
    WHERE strpos(labels, wanted.pair) = 0) THEN true ELSE false END

-- name: list_run_prefix
AND run >= :run_prefix AND starts_with(run, :run_prefix)

-- name: list_parent
AND parent = :parent

-- name: list_redriven
AND EXISTS (SELECT 1 FROM heads AS redrive WHERE redrive.origin = heads.run)

-- name: list_not_redriven
AND NOT EXISTS (SELECT 1 FROM heads AS redrive WHERE redrive.origin = heads.run)

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

-- name: labelled
-- The same for runs with a label, newest first from the table of labels: as quick for one of a million
-- runs as for one of three. That they have it is asked as well, as are all other conditions.
SELECT run, definition, name, dialect, status, seq, created_at, updated_at, next_wake, labels,
       parent, origin, finished, problems, reason
FROM run_labels JOIN heads ON heads.run = labelled_run
WHERE label = :label AND labelled_at >= :labelled_after
  AND (labelled_at, labelled_run) < (:labelled_before, :labelled_before_run)

-- name: labelled_order
ORDER BY labelled_at DESC, labelled_run DESC
LIMIT :limit

-- name: count_labelled
-- How many there are, up to a limit.
SELECT count(*) FROM (SELECT 1 FROM run_labels WHERE label = :label LIMIT :limit) AS found

-- name: count_named
SELECT count(*) FROM (SELECT 1 FROM heads WHERE name = :name LIMIT :limit) AS found

-- name: runs_known
SELECT run, finished FROM heads WHERE run IN (SELECT jsonb_array_elements_text(:runs::jsonb))

-- name: list_word
-- Labels are JSON: `{"a":"b","c":"d"}` is searched as two lines, `a=b` and `c=d`.
AND (run ILIKE :searched OR name ILIKE :searched OR reason ILIKE :searched
     OR (labels <> '{}'
         AND replace(replace(trim(BOTH '{}"' FROM labels), '":"', '='), '","', chr(10))
             ILIKE :searched))

-- name: list_letters
AND (run ~ :searched OR name ~ :searched OR reason ~ :searched
     OR (labels <> '{}'
         AND replace(replace(trim(BOTH '{}"' FROM labels), '":"', '='), '","', chr(10))
             ~ :searched))

-- name: slots
SELECT created_at / :width::bigint, status, count(*)
FROM heads
WHERE TRUE

-- name: slots_order
GROUP BY 1, 2

-- name: history_counts
SELECT created_at / :width::bigint, name, status, count(*)
FROM heads
WHERE created_at >= :since
GROUP BY 1, 2, 3

-- name: history_durations
SELECT name, percentile_disc(0.5) WITHIN GROUP (ORDER BY updated_at - created_at),
       percentile_disc(0.95) WITHIN GROUP (ORDER BY updated_at - created_at)
FROM heads
WHERE created_at >= :since AND finished
GROUP BY name

-- name: unfinished_counts
SELECT status, count(*) FROM heads WHERE NOT finished GROUP BY status

-- name: waiting_longest
SELECT run, definition, name, dialect, status, seq, created_at, updated_at, next_wake, labels,
       parent, origin, finished, problems, reason
FROM heads
WHERE NOT finished AND (reason <> '' OR status IN ('waiting', 'paused', 'queued'))
ORDER BY updated_at, run
LIMIT :limit
