-- How many step runs ended badly and nothing took care of it: lists show it beside the status.
ALTER TABLE heads ADD COLUMN problems INTEGER NOT NULL DEFAULT 0 CHECK (problems >= 0);
