-- By what lists of runs are narrowed. A run keeps its name and its labels, so its moves write neither
-- of these. A label is a number made of its key and value; `label_numbers` is a function of the store.
CREATE INDEX heads_of_name ON heads (name, created_at, run);

CREATE TABLE run_labels (
    label        INTEGER NOT NULL,
    labelled_at  INTEGER NOT NULL,
    labelled_run TEXT    NOT NULL,
    PRIMARY KEY (label, labelled_at, labelled_run)
) STRICT, WITHOUT ROWID;

-- In the order of the key: each row goes to the end.
INSERT INTO run_labels
SELECT each.value, created_at, run FROM heads, json_each(label_numbers(labels)) AS each
WHERE labels <> '{}'
ORDER BY 1, 2, 3;
