-- Servers, their leases and the partitions they own. Instants are those of the database.

-- name: join
-- What it owned before, if it joins again, is nobody's: it has nothing of it in memory.
WITH released AS (
    UPDATE partitions SET owner = NULL, epoch = epoch + 1 WHERE owner = :id
)
INSERT INTO servers (id, name, url, version, joined_at, lease_until, draining, takes_share)
VALUES (:id, :name, :url, :version, clock_timestamp(),
        clock_timestamp() + make_interval(secs => :lease), :draining, :takes_share)
ON CONFLICT (id) DO UPDATE SET lease_until = excluded.lease_until

-- name: extend_lease
-- No row when the lease ran out and another server has removed this one.
UPDATE servers SET lease_until = clock_timestamp() + make_interval(secs => :lease)
WHERE id = :id
RETURNING id

-- name: servers
-- Those whose lease has ended and whose partitions others have taken are removed on the way.
WITH gone AS (
    DELETE FROM servers
    WHERE lease_until < clock_timestamp()
      AND NOT EXISTS (SELECT 1 FROM partitions WHERE partitions.owner = servers.id)
    RETURNING id
)
SELECT id, name, url, version,
       floor(extract(epoch FROM joined_at) * 1000)::bigint,
       floor(extract(epoch FROM lease_until - clock_timestamp()) * 1000)::bigint,
       draining,
       (SELECT count(*) FROM partitions WHERE partitions.owner = servers.id)::integer,
       takes_share
FROM servers
WHERE NOT EXISTS (SELECT 1 FROM gone WHERE gone.id = servers.id)
ORDER BY id

-- name: drain
UPDATE servers SET draining = :draining WHERE id = :id RETURNING id

-- name: leave
DELETE FROM servers WHERE id = :id

-- name: partitions
SELECT partition, owner, epoch, number FROM partitions ORDER BY partition

-- name: remove_others
-- Servers whose lease has ended, before a server claims what they owned: either one extends its lease
-- first and keeps all it owns, or it finds itself removed. A server that was removed itself removes
-- nothing. Its own row is locked first of all, and nothing is waited for after that.
WITH mine AS (
    SELECT id FROM servers WHERE id = :id FOR UPDATE
)
DELETE FROM servers
WHERE id IN (SELECT id FROM servers
             WHERE lease_until < clock_timestamp() AND id <> :id AND EXISTS (SELECT 1 FROM mine)
             FOR UPDATE SKIP LOCKED)

-- name: claim
-- What no server owns, and what is this server's without its knowledge: the answer to an earlier claim
-- was lost. The epoch shuts out the owner before. Two servers that claim at once do not wait for each
-- other's partitions, and neither gets what the other has. A server that was removed gets nothing
-- before it joins again: it may have runs of these partitions in memory as they were before.
-- Nothing else is changed in this statement: PostgreSQL cannot look again at a row that another server
-- has just changed where a statement reads what it deletes (error XX000).
WITH mine AS (
    SELECT id FROM servers WHERE id = :id FOR UPDATE
)
UPDATE partitions SET owner = :id, epoch = epoch + 1
WHERE partition IN (
    SELECT partition FROM partitions
    WHERE EXISTS (SELECT 1 FROM mine)
      AND ((owner = :id
            AND partition NOT IN (SELECT jsonb_array_elements_text(:known::jsonb)::integer))
           OR owner IS NULL
           OR NOT EXISTS (SELECT 1 FROM servers WHERE servers.id = partitions.owner))
    ORDER BY owner IS NOT DISTINCT FROM :id DESC, partition
    LIMIT :most
    FOR UPDATE SKIP LOCKED
)
RETURNING partition, epoch, number

-- name: remove_expired
-- Before a command writes to their partitions.
DELETE FROM servers WHERE lease_until < clock_timestamp()

-- name: clock
SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint

-- name: hand_over
UPDATE partitions SET owner = NULL, epoch = epoch + 1
WHERE owner = :id AND partition IN (SELECT jsonb_array_elements_text(:given::jsonb)::integer)

-- name: owners
SELECT DISTINCT servers.name
FROM partitions JOIN servers ON servers.id = partitions.owner
WHERE servers.lease_until >= clock_timestamp()
ORDER BY servers.name

-- name: news
-- What others may have written: numbers of all partitions, and the last message.
SELECT (SELECT sum(number) FROM partitions),
       (SELECT coalesce(max(id), 0) FROM mailbox)

-- name: keep_session
-- Those that are over, and the oldest of the same token where it has too many, go on the way. Who has
-- not seen the end of it says it again.
WITH gone AS (
    DELETE FROM browser_sessions
    WHERE until <= :now
       OR key IN (SELECT key FROM browser_sessions WHERE token = :token AND key <> :key
                  ORDER BY until DESC, key OFFSET :most - 1)
)
INSERT INTO browser_sessions (key, token, csrf, until) VALUES (:key, :token, :csrf, :until)
ON CONFLICT (key) DO NOTHING

-- name: session
SELECT token, csrf, until, key FROM browser_sessions WHERE key = :key

-- name: end_session
DELETE FROM browser_sessions WHERE key = :key

-- name: keep_sealed
INSERT INTO sealed (run, key, value)
SELECT :run::text, kept.key, kept.value FROM unnest(:keys::text[], :contents::bytea[])
    AS kept (key, value)
ON CONFLICT (run, key) DO UPDATE SET value = excluded.value

-- name: moved_since
SELECT heads.run, heads.seq, heads.status, heads.updated_at, heads.finished, moved.first = 1
FROM (
    SELECT log.run, min(log.last_seq - log.count) + 1 AS first
    FROM jsonb_each_text(:numbers::jsonb) AS since (partition, number)
    JOIN log ON log.partition = since.partition::integer AND log.number > since.number::bigint
    GROUP BY log.run
) AS moved
JOIN heads ON heads.run = moved.run

-- name: moved_runs
SELECT heads.run, heads.seq, heads.status, heads.updated_at, heads.finished, seen.seq = '0'
FROM jsonb_each_text(:seen::jsonb) AS seen (run, seq)
JOIN heads ON heads.run = seen.run COLLATE "C" AND heads.seq > seen.seq::bigint

-- name: where_runs_are
SELECT run, partition FROM heads WHERE run IN (SELECT jsonb_array_elements_text(:runs::jsonb))

-- name: where_messages_are
SELECT id, partition FROM mailbox
WHERE id IN (SELECT jsonb_array_elements_text(:ids::jsonb)::bigint)

-- name: numbers
SELECT partition, owner, epoch, number FROM partitions
WHERE partition IN (SELECT jsonb_array_elements_text(:wanted::jsonb)::integer)

-- name: row_at
SELECT run, last_seq FROM log WHERE partition = :partition AND number = :number

-- name: partition_lags
SELECT partition, coalesce(mail.waiting, 0)::integer, mail.since, coalesce(hook.lag, 0)::bigint
FROM (SELECT partition, count(*) AS waiting, min(posted_at) AS since
      FROM mailbox WHERE answer IS NULL
      GROUP BY partition) AS mail
FULL JOIN (SELECT partition, max(number - position) AS lag
           FROM hook_cursors
           JOIN partitions USING (partition)
           JOIN hooks ON hooks.id = hook_cursors.hook AND hooks.enabled
           WHERE number > position
           GROUP BY partition) AS hook USING (partition)
