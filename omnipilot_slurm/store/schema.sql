-- The site's database, by schema version. A database of an older version is brought up to date by
-- the sections above its own, each in one transaction; a section that has shipped is never edited.

-- version 1
PRAGMA application_id = 1330464841;

-- one row for each decision that was answered; never changed, deleted only when too old
CREATE TABLE decisions (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,  -- order of writing, also when the clock went back
    id TEXT NOT NULL UNIQUE,                -- decision_id, in AdminComment as omnipilot=<id>:<verdict>
    at REAL NOT NULL,                       -- when it was answered, Unix time in s
    verdict TEXT NOT NULL,                  -- what the shim was told
    would_be TEXT,                          -- what it would have been told in enforce mode
    code TEXT,                              -- the reason's stable code
    user_name TEXT,
    account TEXT,
    partition TEXT,                         -- as asked for
    job_name TEXT,
    script_sha256 TEXT NOT NULL,            -- the script itself is never kept
    script_bytes INTEGER NOT NULL,
    generation INTEGER NOT NULL,            -- of the state that it was decided on
    elapsed_ms REAL NOT NULL,               -- accept to answer sent
    repeats TEXT,                           -- id of the decision on the same submission whose answer
                                            -- was given again; answer and record are in its row
    answer TEXT,                            -- JSON: messages, fields, env, edits
    record TEXT,                            -- JSON: what the decider keeps of its reasons
    CHECK ((repeats IS NULL) = (answer IS NOT NULL) AND (repeats IS NULL) = (record IS NOT NULL))
) STRICT;

CREATE INDEX decisions_at ON decisions (at);

CREATE TRIGGER decisions_stay BEFORE UPDATE ON decisions
BEGIN
    SELECT RAISE(ABORT, 'decisions are append-only');
END;
