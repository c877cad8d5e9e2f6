-- name: put_grant
INSERT INTO grants (
    rid, scope, grantee, owner, rights, enc_dek, expires_at, is_owner, ref_addr, session
) VALUES (
    :rid, :scope, :grantee, :owner, :rights, :enc_dek, :expires_at, :is_owner, :ref_addr, :session
)
ON CONFLICT (rid, scope, grantee) DO UPDATE SET
    rights = excluded.rights, enc_dek = excluded.enc_dek, expires_at = excluded.expires_at,
    ref_addr = excluded.ref_addr, session = excluded.session

-- name: grants_of
SELECT rid, scope, grantee, owner, rights, enc_dek, expires_at, is_owner, ref_addr, session, id
FROM grants WHERE rid = :rid AND scope = :scope ORDER BY id

-- name: grants_for
SELECT rid, scope, grantee, owner, rights, enc_dek, expires_at, is_owner, ref_addr, session, id
FROM grants WHERE (grantee = :who OR owner = :who) AND id > :after ORDER BY id LIMIT :limit

-- name: count_grants
SELECT count(*) FROM grants WHERE owner = :owner

-- name: forget_grants
DELETE FROM grants WHERE owner = :owner AND expires_at < :before AND is_owner = 0
