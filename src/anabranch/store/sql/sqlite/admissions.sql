-- Limits across runs: who has a place under which key, and who waits. A place belongs to an unfinished
-- run: rows of runs that have ended count for nothing, whether or not they are gone.

-- name: ask_admission
INSERT INTO admissions (run, key, run_limit, when_full, priority, asked_at)
VALUES (:run, :key, :run_limit, :when_full, :priority, :asked_at)
ON CONFLICT DO NOTHING

-- name: forget_admissions
DELETE FROM admissions WHERE run = :run

-- name: forget_places
-- Another run may have the id of one that was purged: it must not find a place that was given.
DELETE FROM admissions WHERE run IN (SELECT value FROM json_each(:runs))

-- name: forget_ended_admissions
DELETE FROM admissions WHERE run IN (
    SELECT one.run FROM admissions AS one
    WHERE one.key = :key AND one.admitted_at IS NOT NULL
      AND NOT EXISTS (SELECT 1 FROM heads WHERE heads.run = one.run AND NOT heads.finished)
)

-- name: room_under_key
SELECT
    (SELECT count(*) FROM admissions WHERE key = :key AND admitted_at IS NOT NULL),
    (SELECT max(run_limit) FROM admissions WHERE key = :key AND admitted_at IS NULL)

-- name: waiting_under_key
SELECT run, run_limit, priority, asked_at,
    NOT EXISTS (SELECT 1 FROM heads WHERE heads.run = admissions.run AND NOT heads.finished)
FROM admissions
WHERE key = :key AND admitted_at IS NULL
  AND (priority < :before_priority
    OR (priority = :before_priority AND (asked_at, run) > (:before_asked, :before_run)))
ORDER BY priority DESC, asked_at, run
LIMIT :limit

-- name: full_keys_of_run
SELECT mine.key FROM admissions AS mine
WHERE mine.run = :run
  AND (
    SELECT count(*) FROM admissions AS held
    WHERE held.key = mine.key AND held.admitted_at IS NOT NULL
      AND EXISTS (SELECT 1 FROM heads WHERE heads.run = held.run AND NOT heads.finished)
  ) >= mine.run_limit

-- name: give_places
UPDATE admissions SET admitted_at = :now WHERE run = :run

-- name: impatient_under_key
SELECT run, run_limit, when_full
FROM admissions
WHERE key = :key AND admitted_at IS NULL AND when_full <> 'queue'
  AND EXISTS (SELECT 1 FROM heads WHERE heads.run = admissions.run AND NOT heads.finished)
ORDER BY asked_at, run

-- name: cancellable_under_key
SELECT run, run_limit
FROM admissions
WHERE key = :key AND (admitted_at IS NOT NULL OR when_full = 'cancel_oldest')
  AND EXISTS (SELECT 1 FROM heads WHERE heads.run = admissions.run AND NOT heads.finished)
ORDER BY asked_at, run

-- name: admissions
SELECT run, key, run_limit, when_full, priority, asked_at, admitted_at
FROM admissions
WHERE key = :key
  AND EXISTS (SELECT 1 FROM heads WHERE heads.run = admissions.run AND NOT heads.finished)
ORDER BY admitted_at IS NULL, admitted_at,
    CASE WHEN admitted_at IS NULL THEN -priority ELSE 0 END, asked_at, run
LIMIT :limit

-- name: places_of_run
SELECT mine.run, mine.key, mine.run_limit, mine.when_full, mine.priority, mine.asked_at,
    mine.admitted_at,
    (
        SELECT count(*) FROM admissions AS held
        WHERE held.key = mine.key AND held.admitted_at IS NOT NULL
          AND EXISTS (SELECT 1 FROM heads WHERE heads.run = held.run AND NOT heads.finished)
    ),
    CASE WHEN mine.admitted_at IS NOT NULL THEN 0 ELSE (
        SELECT count(*) FROM admissions AS other
        WHERE other.key = mine.key AND other.admitted_at IS NULL
          AND (other.priority > mine.priority
            OR (other.priority = mine.priority
              AND (other.asked_at, other.run) <= (mine.asked_at, mine.run)))
          AND EXISTS (SELECT 1 FROM heads WHERE heads.run = other.run AND NOT heads.finished)
    ) END
FROM admissions AS mine
WHERE mine.run = :run
  AND EXISTS (SELECT 1 FROM heads WHERE heads.run = mine.run AND NOT heads.finished)
ORDER BY mine.key

-- name: limited_keys
SELECT key, max(run_limit), count(admitted_at), count(*) - count(admitted_at),
    min(CASE WHEN admitted_at IS NULL THEN asked_at END)
FROM admissions
WHERE key > :after
  AND EXISTS (SELECT 1 FROM heads WHERE heads.run = admissions.run AND NOT heads.finished)
GROUP BY key
ORDER BY key
LIMIT :limit

-- name: admissions_known
SELECT DISTINCT run FROM admissions WHERE run IN (SELECT value FROM json_each(:runs))

-- name: queued_and_admitted
SELECT DISTINCT one.run FROM admissions AS one
JOIN heads ON heads.run = one.run
WHERE one.admitted_at IS NOT NULL AND heads.status = 'queued' AND NOT heads.finished
ORDER BY one.run
LIMIT :limit
