-- What work printed, beside the log of events. A row holds pieces of what one attempt printed.
CREATE TABLE work_logs (
    run        text COLLATE "C" NOT NULL CHECK (run <> ''),
    number     bigint  NOT NULL CHECK (number >= 1),
    job        text COLLATE "C" NOT NULL,
    attempt    integer NOT NULL,
    step       text COLLATE "C" NOT NULL,
    first_line bigint  NOT NULL CHECK (first_line >= 0),
    lines      integer NOT NULL CHECK (lines >= 1),
    start      bigint  NOT NULL CHECK (start >= 0),
    size       integer NOT NULL CHECK (size >= 0),
    at         bigint  NOT NULL,
    pieces     bytea   NOT NULL,
    PRIMARY KEY (run, number)
);
