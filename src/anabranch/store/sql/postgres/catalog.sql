-- The catalog: which definition stands under which path, in which version.

-- name: add_catalog
INSERT INTO catalog (path, version, fingerprint, name, dialect, created_at, created_by)
VALUES (:path, :version, :fingerprint, :name, :dialect, :created_at, :created_by)
RETURNING id

-- name: catalog_entry
SELECT id, path, version, fingerprint, name, dialect, created_at, created_by
FROM catalog
WHERE path = :path AND (:version::bigint IS NULL OR version = :version)
ORDER BY version DESC
LIMIT 1

-- name: catalog_by_id
SELECT id, path, version, fingerprint, name, dialect, created_at, created_by
FROM catalog
WHERE id = :id

-- name: catalog_paths
SELECT DISTINCT ON (path) id, path, version, fingerprint, name, dialect, created_at, created_by
FROM catalog
WHERE path > :after AND starts_with(path, :prefix)
ORDER BY path, version DESC
LIMIT :limit

-- name: catalog_versions
SELECT id, path, version, fingerprint, name, dialect, created_at, created_by
FROM catalog
WHERE path = :path
ORDER BY version DESC
LIMIT :limit
