-- Tokens, the audit trail and the answers kept for repeated requests.

-- name: add_token
INSERT INTO tokens (id, digest, name, scopes, created_at, expires_at, last_used_at, revoked_at,
                    pools)
VALUES (:id, :digest, :name, :scopes, :created_at, :expires_at, :last_used_at, :revoked_at,
        :pools)

-- name: token
SELECT id, digest, name, scopes, created_at, expires_at, last_used_at, revoked_at, pools
FROM tokens
WHERE id = :id

-- name: tokens
SELECT id, digest, name, scopes, created_at, expires_at, last_used_at, revoked_at, pools
FROM tokens
ORDER BY created_at, id

-- name: revoke_token
UPDATE tokens SET revoked_at = :now WHERE id = :id AND revoked_at IS NULL

-- name: use_token
UPDATE tokens SET last_used_at = max(coalesce(last_used_at, 0), :now) WHERE id = :id

-- name: add_audit
INSERT INTO audit (at, actor, action, subject, outcome, address, detail)
VALUES (:at, :actor, :action, :subject, :outcome, :address, :detail)

-- name: audit
SELECT number, at, actor, action, subject, outcome, address, detail
FROM audit
WHERE (:before IS NULL OR number < :before)
  AND (:actor IS NULL OR actor = :actor)
  AND (:action IS NULL OR action = :action)
ORDER BY number DESC
LIMIT :limit

-- name: audit_of_subject
SELECT number, at, actor, action, subject, outcome, address, detail
FROM audit
WHERE subject = :subject AND subject <> ''
  AND (:before IS NULL OR number < :before)
  AND (:actor IS NULL OR actor = :actor)
  AND (:action IS NULL OR action = :action)
ORDER BY number DESC
LIMIT :limit

-- name: forget_audit
DELETE FROM audit WHERE number IN (
    SELECT number FROM audit WHERE at < :before ORDER BY at LIMIT :limit)

-- name: kept_answer
SELECT actor, key, body, holder, expires_at, status, answer
FROM idempotency
WHERE actor = :actor AND key = :key

-- name: claim_key
-- One statement: two servers that come with the same key at once do not both get it.
INSERT INTO idempotency (actor, key, body, holder, expires_at, status, answer)
VALUES (:actor, :key, :body, :holder, :expires_at, NULL, NULL)
ON CONFLICT (actor, key) DO UPDATE
SET body = excluded.body, holder = excluded.holder, expires_at = excluded.expires_at, status = NULL,
    answer = NULL
WHERE idempotency.expires_at <= :now

-- name: put_answer
INSERT INTO idempotency (actor, key, body, holder, expires_at, status, answer)
VALUES (:actor, :key, :body, :holder, :expires_at, :status, :answer)
ON CONFLICT (actor, key) DO UPDATE
SET body = excluded.body, holder = excluded.holder, expires_at = excluded.expires_at,
    status = excluded.status, answer = excluded.answer

-- name: keep_answer
UPDATE idempotency SET status = :status, answer = :answer
WHERE actor = :actor AND key = :key AND holder = :holder AND status IS NULL

-- name: release_key
DELETE FROM idempotency
WHERE actor = :actor AND key = :key AND holder = :holder AND status IS NULL

-- name: forget_keys
DELETE FROM idempotency WHERE rowid IN (
    SELECT rowid FROM idempotency WHERE expires_at <= :now ORDER BY expires_at LIMIT :limit)
