-- Definitions are listed newest first, of all names or of one, without touching their sources.
CREATE INDEX definitions_newest ON definitions (created_at, fingerprint);
CREATE INDEX definitions_of_name ON definitions (name, created_at, fingerprint);
