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

-- version 2
-- what the site's own jobs teach: how launches ended, how long jobs waited, what users made of
-- proposals. A row that is read again from accounting replaces itself.

-- one row for each vLLM server that was started, once it is known how that ended
CREATE TABLE launches (
    job_id TEXT NOT NULL,                   -- as sacct writes it: 4711, 4711_3, 4711+1
    submitted_at REAL NOT NULL,             -- Unix time in s; job ids are used again some day
    decision_id TEXT,                       -- of the decision on the job, where there was one
    gpu TEXT NOT NULL,                      -- catalog id
    n_gpus INTEGER NOT NULL CHECK (n_gpus > 0),
    tensor_parallel INTEGER NOT NULL CHECK (tensor_parallel > 0),
    precision TEXT NOT NULL,
    engine_version TEXT,                    -- as the log says it, null where it does not
    outcome TEXT NOT NULL CHECK (outcome IN (
        'ok',                               -- it came up, however its job ended later
        'oom', 'incompatible', 'timeout', 'node_failure', 'other',  -- it did not, and why
        'cancelled'                         -- somebody ended it before it was up: tells nothing
    )),
    checked INTEGER NOT NULL CHECK (checked IN (0, 1)),  -- 1: it had passed every check before
    PRIMARY KEY (job_id, submitted_at)
) STRICT;

CREATE INDEX launches_submitted_at ON launches (submitted_at);

-- one row for each job with GPUs that has started
CREATE TABLE waits (
    job_id TEXT NOT NULL,
    submitted_at REAL NOT NULL,
    partition TEXT NOT NULL,                -- in which it ran
    gres_type TEXT,                         -- as Slurm names it, null for GPUs without a type
    n_gpus INTEGER NOT NULL CHECK (n_gpus > 0),
    wait_s REAL NOT NULL CHECK (wait_s >= 0),  -- eligible to started
    PRIMARY KEY (job_id, submitted_at)
) STRICT;

CREATE INDEX waits_submitted_at ON waits (submitted_at);

-- what a user did with what was proposed to them
CREATE TABLE choices (
    decision_id TEXT PRIMARY KEY,
    at REAL NOT NULL,                       -- when it was done, Unix time in s
    did TEXT NOT NULL CHECK (did IN (
        'accepted',                         -- ran it there
        'overridden',                       -- submitted it again elsewhere
        'opted_out',                        -- kept their own choice, with off
        'cancelled_early'                   -- cancelled it within minutes
    )),
    proposed TEXT NOT NULL,                 -- JSON: the arm and its utility_terms_usd
    own TEXT                                -- JSON: the same of the user's own choice, if it is known
) STRICT;

CREATE INDEX choices_at ON choices (at);
