-- Records of features, by family and name.

-- name: record
SELECT family, name, version, body, due, updated_at
FROM named_records
WHERE family = :family AND name = :name

-- name: records
SELECT family, name, version, body, due, updated_at
FROM named_records
WHERE family = :family AND name > :after
ORDER BY name
LIMIT :limit

-- name: due_records
SELECT family, name, version, body, due, updated_at
FROM named_records
WHERE family = :family AND due <= :now
ORDER BY due, name
LIMIT :limit

-- name: add_records
INSERT INTO named_records (family, name, version, body, due, updated_at)
SELECT family, name, 1, body, due, updated_at
FROM json_to_recordset(:changes::json)
    AS given (family text, name text, body text, due bigint, updated_at bigint)
ON CONFLICT DO NOTHING
RETURNING family, name

-- name: change_records
UPDATE named_records
SET version = named_records.version + 1, body = given.body, due = given.due,
    updated_at = given.updated_at
FROM json_to_recordset(:changes::json)
    AS given (family text, name text, seen bigint, body text, due bigint, updated_at bigint)
WHERE named_records.family = given.family AND named_records.name = given.name
  AND named_records.version = given.seen
RETURNING named_records.family, named_records.name

-- name: drop_record
DELETE FROM named_records WHERE family = :family AND name = :name AND version = :seen
