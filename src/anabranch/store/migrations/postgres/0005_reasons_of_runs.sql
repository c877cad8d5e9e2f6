-- Why a run stands as it does, in one line: its problem, or what it waits for. Lists show it, and
-- searches look into it. Runs that ended before have none.
ALTER TABLE heads ADD COLUMN reason text COLLATE "C" NOT NULL DEFAULT '';
