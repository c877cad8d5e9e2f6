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
    ORDER BY last_seq
    LIMIT :limit
) AS sizes

-- name: read_snapshots
SELECT snapshots.run, snapshots.seq, snapshots.state
FROM snapshots
WHERE run IN (SELECT jsonb_array_elements_text(:runs::jsonb))

-- name: read_tails
SELECT log.run, log.last_seq - log.count + 1, log.count, log.at, log.events
FROM jsonb_array_elements_text(:runs::jsonb) AS wanted (run)
LEFT JOIN snapshots ON snapshots.run = wanted.run
JOIN log ON log.run = wanted.run AND log.last_seq > coalesce(snapshots.seq, 0)
ORDER BY log.run, log.last_seq
