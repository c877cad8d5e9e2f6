-- What one turn writes. Bound with tuples: sqlite_commit.py states the order of the parameters.

-- name: append_record
INSERT INTO log (run, last_seq, count, at, events)
VALUES (:run, :last_seq, :count, :at, :events)

-- name: create_head
-- Zero rows when the run exists.
INSERT INTO heads (run, definition, name, dialect, status, seq, created_at, updated_at,
                   next_wake, labels, parent, origin, finished, problems, reason)
VALUES (:run, :definition, :name, :dialect, :status, :seq, :created_at, :updated_at,
        :next_wake, :labels, :parent, :origin, :finished, :problems, :reason)
ON CONFLICT (run) DO NOTHING

-- name: label_run
-- Once a run, since it keeps its labels.
INSERT INTO run_labels (label, labelled_at, labelled_run) VALUES (:label, :labelled_at, :labelled_run)
ON CONFLICT DO NOTHING

-- name: move_head
-- Zero rows when somebody else was first or the run has finished. Two forms, since an index is
-- rewritten whenever its columns are named: only the last move of a run touches `finished`.
UPDATE heads
SET definition = :definition, dialect = :dialect, status = :status, seq = :seq,
    updated_at = :updated_at, next_wake = :next_wake, problems = :problems, reason = :reason
WHERE run = :run AND seq = :expected AND finished = 0 AND name = :name AND labels = :labels
  AND created_at = :created_at AND parent IS :parent AND origin IS :origin

-- name: finish_head
UPDATE heads
SET definition = :definition, dialect = :dialect, status = :status, seq = :seq,
    updated_at = :updated_at, next_wake = :next_wake, problems = :problems, reason = :reason,
    finished = 1
WHERE run = :run AND seq = :expected AND finished = 0 AND name = :name AND labels = :labels
  AND created_at = :created_at AND parent IS :parent AND origin IS :origin

-- name: let_recover
-- A run that only waits stays in the store when an engine opens it.
UPDATE heads SET status = 'running' WHERE run = :run AND status = 'waiting'

-- name: replace_snapshot
INSERT INTO snapshots (run, seq, state) VALUES (:run, :seq, :state)
ON CONFLICT (run) DO UPDATE SET seq = excluded.seq, state = excluded.state

-- name: put_payload
INSERT INTO payloads (sha256, content) VALUES (:sha256, :content)
ON CONFLICT (sha256) DO NOTHING

-- name: answer_message
-- Zero rows when it is answered already or was never posted.
UPDATE mailbox SET answer = :answer WHERE id = :id AND answer IS NULL

-- name: seal
INSERT INTO sealed (run, key, value) VALUES (:run, :key, :value)
ON CONFLICT (run, key) DO UPDATE SET value = excluded.value

-- name: unseal
DELETE FROM sealed WHERE run = :run
