-- What work printed, beside the log of events. A row holds pieces of what one attempt printed.
CREATE TABLE work_logs (
    run        TEXT    NOT NULL CHECK (run <> ''),
    number     INTEGER NOT NULL CHECK (number >= 1),
    job        TEXT    NOT NULL,
    attempt    INTEGER NOT NULL,
    step       TEXT    NOT NULL,
    first_line INTEGER NOT NULL CHECK (first_line >= 0),
    lines      INTEGER NOT NULL CHECK (lines >= 1),
    start      INTEGER NOT NULL CHECK (start >= 0),
    size       INTEGER NOT NULL CHECK (size >= 0),
    at         INTEGER NOT NULL,
    pieces     BLOB    NOT NULL,
    UNIQUE (run, number)
) STRICT;
