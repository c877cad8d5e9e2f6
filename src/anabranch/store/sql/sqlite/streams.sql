-- Streams of a node, and their cards.

-- name: create_stream
-- Zero rows when the stream exists.
INSERT INTO streams (stream, family, seq, state, created_at, updated_at, open, wake, group_name)
VALUES (:stream, :family, :seq, :state, :created_at, :updated_at, :open, :wake, :group_name)
ON CONFLICT (stream) DO NOTHING

-- name: move_stream
-- Zero rows when the stream does not end where the commit says, or when an index has to change.
UPDATE streams
SET seq = :seq, state = :state, updated_at = :updated_at, wake = :wake
WHERE stream = :stream AND seq = :expected AND family = :family AND created_at = :created_at
  AND open = :open AND group_name = :group_name

-- name: turn_stream
-- The same for a stream that opens, closes or goes to another group: more indexes are written.
UPDATE streams
SET seq = :seq, state = :state, updated_at = :updated_at, wake = :wake,
    open = :open, group_name = :group_name
WHERE stream = :stream AND seq = :expected AND family = :family AND created_at = :created_at

-- name: append_stream_events
INSERT INTO stream_events (stream, last_seq, count, at, events)
VALUES (:stream, :last_seq, :count, :at, :events)

-- name: stream
SELECT stream, family, seq, state, created_at, updated_at, open, wake, group_name
FROM streams
WHERE stream = :stream

-- name: list_streams
SELECT stream, family, seq, state, created_at, updated_at, open, wake, group_name
FROM streams
WHERE family = :family

-- name: list_streams_group
-- A partial index serves a group that has a name, and must be told that it has one.
AND group_name = :group_name AND group_name <> ''

-- name: list_streams_no_group
AND group_name = ''

-- name: list_streams_open
AND open = 1

-- name: list_streams_closed
AND open = 0

-- name: list_streams_before
AND (created_at, stream) < (:before_at, :before)

-- name: list_streams_order
ORDER BY created_at DESC, stream DESC
LIMIT :limit

-- name: open_streams
SELECT stream, family, seq, state, created_at, updated_at, open, wake, group_name
FROM streams
WHERE open = 1 AND stream > :after
ORDER BY stream
LIMIT :limit

-- name: stream_names
SELECT stream FROM streams WHERE stream > :after ORDER BY stream LIMIT :limit

-- name: stream_events
SELECT last_seq - count + 1, count, at, events
FROM stream_events
WHERE stream = :stream AND last_seq > :after
ORDER BY last_seq
LIMIT :limit

-- name: closed_streams
SELECT stream
FROM streams
WHERE family = :family AND open = 0 AND updated_at < :before
  AND (:group_name IS NULL OR group_name = :group_name)
ORDER BY updated_at, stream
LIMIT :limit

-- name: forget_stream_events
DELETE FROM stream_events WHERE stream IN (SELECT value FROM json_each(:streams))

-- name: forget_streams
DELETE FROM streams WHERE stream IN (SELECT value FROM json_each(:streams))

-- name: inspect_streams
SELECT rowid, stream, family, seq, state, created_at, updated_at, open, wake, group_name
FROM streams
WHERE rowid > :after
ORDER BY rowid
LIMIT :limit

-- name: inspect_cardless_streams
SELECT DISTINCT stream FROM stream_events
WHERE NOT EXISTS (SELECT 1 FROM streams WHERE streams.stream = stream_events.stream)
LIMIT :limit
