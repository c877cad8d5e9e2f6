-- Reading the log.

-- name: read
SELECT last_seq - count + 1, count, at, events
FROM log
WHERE run = :run AND last_seq > :after
ORDER BY last_seq
LIMIT :limit

-- name: weight_of_log
-- The lengths are known without reading the events themselves.
SELECT count(*), coalesce(sum(size), 0)
FROM (
    SELECT length(events) AS size FROM log
    WHERE run = :run AND last_seq > :after
    LIMIT :limit
)

-- name: read_snapshots
-- CROSS JOIN keeps the order of the join: from the wanted runs to their rows, never a scan.
SELECT snapshots.run, snapshots.seq, snapshots.state
FROM json_each(:runs) AS wanted CROSS JOIN snapshots ON snapshots.run = wanted.value

-- name: read_tails
SELECT log.run, log.last_seq - log.count + 1, log.count, log.at, log.events
FROM json_each(:runs) AS wanted
LEFT JOIN snapshots ON snapshots.run = wanted.value
CROSS JOIN log ON log.run = wanted.value AND log.last_seq > coalesce(snapshots.seq, 0)
ORDER BY wanted.id, log.last_seq
