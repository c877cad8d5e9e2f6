-- By what lists of runs are narrowed. A run keeps its name and its labels, so its moves write neither
-- of these. A label is a number made of its key and value. The store fills in what is there already.
CREATE INDEX heads_of_name ON heads (name, created_at, run);

CREATE TABLE run_labels (
    label        bigint NOT NULL,
    labelled_at  bigint NOT NULL,
    labelled_run text COLLATE "C" NOT NULL,
    PRIMARY KEY (label, labelled_at, labelled_run)
);
