-- Which runs redrive a run: asked for every run that is listed.
CREATE INDEX heads_of_origin ON heads (origin, created_at, run) WHERE origin IS NOT NULL;
