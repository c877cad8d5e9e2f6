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
SELECT value ->> 'family', value ->> 'name', 1, value ->> 'body', value ->> 'due',
       value ->> 'updated_at'
FROM json_each(:changes)
WHERE true
ON CONFLICT DO NOTHING
RETURNING family, name

-- name: change_records
UPDATE named_records
SET version = named_records.version + 1, body = given.value ->> 'body',
    due = given.value ->> 'due', updated_at = given.value ->> 'updated_at'
FROM json_each(:changes) AS given
WHERE named_records.family = given.value ->> 'family' AND named_records.name = given.value ->> 'name'
  AND named_records.version = given.value ->> 'seen'
RETURNING named_records.family, named_records.name

-- name: drop_record
DELETE FROM named_records WHERE family = :family AND name = :name AND version = :seen
