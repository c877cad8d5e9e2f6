-- Sessions are numbered by owner. A row outlives its run: no number is ever given out twice.
CREATE TABLE session_numbers (
    owner  TEXT    NOT NULL CHECK (owner <> ''),
    number INTEGER NOT NULL CHECK (number >= 1),
    run    TEXT    NOT NULL CHECK (run <> ''),
    PRIMARY KEY (owner, number)
) STRICT, WITHOUT ROWID;
