-- What work printed: rows of a run, numbered by the owner of the run.

-- name: append_logs
INSERT INTO work_logs (run, number, job, attempt, step, first_line, lines, start, size, at, pieces)
SELECT :run::text, :number::bigint, :job::text, :attempt::integer, :step::text, :first_line::bigint, :lines::integer, :start::bigint, :size::integer, :at::bigint, :pieces::bytea
WHERE EXISTS (SELECT 1 FROM heads WHERE heads.run = :run)

-- name: trim_logs
DELETE FROM work_logs
WHERE run = :run AND job = :job AND attempt = :attempt
  AND start >= :begin AND start + size <= :end

-- name: list_logs
SELECT run, number, job, attempt, step, first_line, lines, start, size, at, pieces
FROM work_logs
WHERE run = :run AND number > :after

-- name: list_logs_before
  AND number < :before

-- name: list_logs_step
  AND step = :step

-- name: list_logs_job
  AND job = :job

-- name: list_logs_attempt
  AND attempt = :attempt

-- name: list_logs_order
ORDER BY number LIMIT :limit

-- name: list_logs_newest
ORDER BY number DESC LIMIT :limit

-- name: log_state
SELECT job, attempt, max(start + size), sum(size), max(number)
FROM work_logs
WHERE run = :run
GROUP BY job, attempt

-- name: log_size
SELECT coalesce(sum(size), 0) FROM work_logs WHERE run = :run

-- name: shrink_logs
DELETE FROM work_logs
WHERE run = :run AND number IN (
    SELECT number FROM (
        SELECT number,
               sum(size) OVER (ORDER BY number) AS upto,
               sum(size) OVER (ORDER BY number DESC) AS since
        FROM work_logs
        WHERE run = :run
    ) AS summed
    WHERE upto > :head AND since > :tail
)

-- name: weight_of_logs
SELECT coalesce(sum(length(pieces)), 0) FROM work_logs WHERE run IN (SELECT jsonb_array_elements_text(:runs::jsonb))

-- name: forget_work_logs
DELETE FROM work_logs WHERE run IN (SELECT jsonb_array_elements_text(:runs::jsonb))
