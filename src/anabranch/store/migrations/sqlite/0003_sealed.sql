-- Values that a run may use and nobody may see: never in the log, gone when the run has ended.
CREATE TABLE sealed (
    run   TEXT NOT NULL,
    key   TEXT NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (run, key)
) STRICT;
