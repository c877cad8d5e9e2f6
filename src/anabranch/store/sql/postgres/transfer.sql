-- A store as one end of a copy.

-- name: lock_against_changes
-- Others may read. A server that starts meanwhile waits here, and then says that the store is busy.
LOCK TABLE servers, partitions, heads, log, snapshots, definitions, payloads, holds, sealed, mailbox,
    tokens, audit, idempotency, hooks, hook_cursors, deliveries, credentials, catalog,
    session_numbers, grants, work_logs IN SHARE MODE

-- name: lock_against_servers
LOCK TABLE servers, partitions IN EXCLUSIVE MODE

-- name: live_servers
SELECT name FROM servers WHERE lease_until >= clock_timestamp() ORDER BY name

-- name: epochs
SELECT coalesce(sum(epoch), 0)::bigint FROM partitions

-- name: all_cursors
SELECT hooks.id, hook_cursors.partition, hook_cursors.position
FROM hooks LEFT JOIN hook_cursors ON hook_cursors.hook = hooks.id

-- name: last_numbers
SELECT partition, max(number) FROM log GROUP BY partition

-- name: partitions_end_with_their_rows
UPDATE partitions
SET number = coalesce((SELECT max(number) FROM log WHERE log.partition = partitions.partition), 0)

-- name: put_cursors
INSERT INTO hook_cursors (hook, partition, position)
SELECT :hook, given.partition, given.number
FROM unnest(:partitions::integer[], :numbers::bigint[]) AS given (partition, number)
ON CONFLICT (hook, partition) DO UPDATE SET position = excluded.position

-- name: said
SELECT said FROM copying WHERE part = :part

-- name: say
INSERT INTO copying (part, said) VALUES (:part, :said)
ON CONFLICT (part) DO UPDATE SET said = excluded.said

-- name: set_counter
SELECT setval(pg_get_serial_sequence(:table, :column), :last)
