-- Credentials by name; their values are encrypted before they come here.

-- name: add_credential
INSERT INTO credentials (name, type, fields, sealed, key_id, version, description,
                         created_at, created_by, updated_at, updated_by)
VALUES (:name, :type, :fields, :sealed, :key_id, :version, :description,
        :created_at, :created_by, :updated_at, :updated_by)

-- name: credential
SELECT name, type, fields, sealed, key_id, version, description,
       created_at, created_by, updated_at, updated_by
FROM credentials
WHERE name = :name

-- name: credentials
SELECT name, type, fields, sealed, key_id, version, description,
       created_at, created_by, updated_at, updated_by
FROM credentials
ORDER BY name

-- name: change_credential
UPDATE credentials
SET type = :type, fields = :fields, sealed = :sealed, key_id = :key_id, version = :version,
    description = :description, updated_at = :updated_at, updated_by = :updated_by
WHERE name = :name AND version = :seen

-- name: drop_credential
DELETE FROM credentials WHERE name = :name
