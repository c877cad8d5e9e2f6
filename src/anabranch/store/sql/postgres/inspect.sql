-- What `store check` reads: everything, once.

-- name: inspect_headless
SELECT * FROM (
    SELECT DISTINCT 'log', log.run FROM log
    WHERE NOT EXISTS (SELECT 1 FROM heads WHERE heads.run = log.run)
    UNION ALL
    SELECT 'snapshots', snapshots.run FROM snapshots
    WHERE NOT EXISTS (SELECT 1 FROM heads WHERE heads.run = snapshots.run)
    UNION ALL
    SELECT DISTINCT 'sealed', sealed.run FROM sealed
    WHERE NOT EXISTS (SELECT 1 FROM heads WHERE heads.run = sealed.run)
      -- A run that a message asks for begins with what was sealed beforehand, under a name of its own.
      AND NOT EXISTS (SELECT 1 FROM mailbox
                      WHERE mailbox.run = regexp_replace(sealed.run, '~[0-9a-f]+$', '')
                        AND mailbox.answer IS NULL)
) AS found
LIMIT :limit

-- name: inspect_holds
SELECT holds.run, holds.sha256 FROM holds
WHERE NOT EXISTS (SELECT 1 FROM payloads WHERE payloads.sha256 = holds.sha256)
LIMIT :limit

-- name: inspect_holders
SELECT DISTINCT run FROM holds WHERE sha256 = :sha256 AND run <> '' LIMIT :limit

-- name: inspect_snapshot
SELECT seq, state FROM snapshots WHERE run = :run

-- name: inspect_checksums
SELECT current_setting('data_checksums')

-- name: inspect_partitions
-- Every partition is there, and no row stands behind the number of its own. Numbers have no gaps but
-- those of purged runs and of answers without a row.
SELECT 'partition', '', 'the store has ' || cluster.partitions || ' partitions, and rows for '
       || count(partitions.partition) || ' of them'
FROM cluster
LEFT JOIN partitions ON partitions.partition BETWEEN 0 AND cluster.partitions - 1
GROUP BY cluster.partitions
HAVING count(partitions.partition) <> cluster.partitions
UNION ALL
SELECT 'partition', '', 'partition ' || log.partition || ' ends at number '
       || coalesce(partitions.number, 0) || ', and its log at ' || max(log.number)
FROM log LEFT JOIN partitions ON partitions.partition = log.partition
GROUP BY log.partition, partitions.number
HAVING max(log.number) > coalesce(partitions.number, -1)

-- name: inspect_places
SELECT 'partition', heads.run, 'it is in partition ' || heads.partition
       || ', and rows of its log are in partition ' || min(log.partition)
FROM heads JOIN log ON log.run = heads.run AND log.partition <> heads.partition
GROUP BY heads.run, heads.partition
UNION ALL
SELECT 'partition', child.run, 'it is in partition ' || child.partition
       || ', and its parent in partition ' || parent.partition
FROM heads AS child JOIN heads AS parent ON parent.run = split_part(child.parent, '/', 1)
WHERE child.parent IS NOT NULL AND child.partition <> parent.partition
LIMIT :limit

-- name: inspect_order
SELECT 'partition', run, 'its events up to ' || last_seq || ' have the number ' || number
       || ' in its partition, those before them ' || before
FROM (SELECT run, last_seq, number,
             lag(number) OVER (PARTITION BY run ORDER BY last_seq) AS before
      FROM log) AS ordered
WHERE before >= number
LIMIT :limit

-- name: inspect_cursors
SELECT 'webhook', '', 'webhook ' || hooks.id || ' has looked up to '
       || coalesce(hook_cursors.position::text, 'nothing') || ' in partition '
       || partitions.partition || ', which ends at ' || partitions.number
FROM hooks
CROSS JOIN partitions
LEFT JOIN hook_cursors
    ON hook_cursors.hook = hooks.id AND hook_cursors.partition = partitions.partition
WHERE hook_cursors.position IS NULL OR hook_cursors.position > partitions.number
LIMIT :limit

-- name: inspect_deliveries
SELECT * FROM (
    SELECT DISTINCT 'webhook', run, 'it has deliveries to webhook ' || hook
           || ', which does not exist'
    FROM deliveries
    WHERE NOT EXISTS (SELECT 1 FROM hooks WHERE hooks.id = deliveries.hook)
    UNION ALL
    SELECT 'webhook', run, 'of its deliveries that wait for webhook ' || hook || ' none is due'
    FROM deliveries
    WHERE state = 'pending'
    GROUP BY hook, run
    HAVING count(due) = 0
) AS found
LIMIT :limit

-- name: inspect_mailbox
SELECT 'message', mailbox.run, 'message ' || mailbox.id || ' waits in partition '
       || mailbox.partition || ', and its run is in partition '
       || coalesce(heads.partition::text, 'none')
FROM mailbox LEFT JOIN heads ON heads.run = mailbox.run
WHERE mailbox.answer IS NULL
  AND (mailbox.partition <> heads.partition
       OR NOT EXISTS (SELECT 1 FROM partitions WHERE partitions.partition = mailbox.partition))
LIMIT :limit
