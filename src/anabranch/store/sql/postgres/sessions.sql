-- name: next_session_number
SELECT coalesce(max(number), 0) + 1 FROM session_numbers WHERE owner = :owner

-- name: add_session_number
INSERT INTO session_numbers (owner, number, run) VALUES (:owner, :number, :run)

-- name: session_run
SELECT run FROM session_numbers WHERE owner = :owner AND number = :number

-- name: drop_session_number
DELETE FROM session_numbers
WHERE owner = :owner AND number = :number AND run = :run
  AND number = (SELECT max(number) FROM session_numbers WHERE owner = :owner)
  AND NOT EXISTS (SELECT 1 FROM heads WHERE heads.run = session_numbers.run)
