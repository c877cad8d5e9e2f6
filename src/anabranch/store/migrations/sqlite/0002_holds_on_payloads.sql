-- Who needs a payload, and until when (0: without end). Content is shared between runs by its hash,
-- so it is deleted with the last hold on it. Payloads from before this table have none and stay.
CREATE TABLE holds (
    sha256 TEXT    NOT NULL,
    run    TEXT    NOT NULL,
    scope  TEXT    NOT NULL CHECK (scope IN ('job', 'step', 'execution', 'workflow', 'permanent')),
    until  INTEGER NOT NULL CHECK (until >= 0),
    PRIMARY KEY (sha256, run, scope)
) STRICT;

CREATE INDEX holds_of_run ON holds (run);
CREATE INDEX holds_over ON holds (until) WHERE until > 0;
