-- A token with the scope `work` may be limited to pools, a JSON list; an empty one is no limit.
ALTER TABLE tokens ADD COLUMN pools TEXT NOT NULL DEFAULT '[]';
