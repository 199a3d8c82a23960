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

-- version 3
-- what is measured here: by benchmarks, by running servers, by the accounting

-- one row for each measured run of a server, or steady stretch of one, whoever measured it
CREATE TABLE benchmarks (
    row_id INTEGER PRIMARY KEY AUTOINCREMENT,
    content_hash TEXT NOT NULL UNIQUE,      -- SHA-256 of what the source says; read again, with
                                            -- another arm or model, it replaces itself
    row_schema INTEGER NOT NULL,            -- version of what the columns mean
    source TEXT NOT NULL,                   -- vllm_bench_serve, guidellm, csv, collect, probe, ...
    file TEXT,                              -- name of the result file, without its folder
    ingested_at REAL NOT NULL,              -- Unix time in s
    measured_at REAL,                       -- when the run ended, if that is said
    job_id TEXT,                            -- as sacct writes it, where it ran in a job
    vllm_version TEXT,
    torch_version TEXT,
    cuda_version TEXT,
    driver_version TEXT,
    model TEXT NOT NULL,                    -- as the server was told
    model_facts TEXT,                       -- JSON of facts.ModelFacts, null: no catalog knew it
    gpu TEXT NOT NULL,                      -- catalog id
    n_gpus INTEGER NOT NULL CHECK (n_gpus > 0),  -- of the server
    n_nodes INTEGER NOT NULL CHECK (n_nodes > 0),
    tensor_parallel INTEGER NOT NULL CHECK (tensor_parallel > 0),
    pipeline_parallel INTEGER NOT NULL CHECK (pipeline_parallel > 0),
    data_parallel INTEGER NOT NULL CHECK (data_parallel > 0),
    expert_parallel INTEGER NOT NULL CHECK (expert_parallel IN (0, 1)),
    precision TEXT NOT NULL,
    kv_cache_dtype TEXT NOT NULL,
    flags TEXT NOT NULL,                    -- JSON: what else of the server is known to be set
    cell TEXT NOT NULL,                     -- model|in<isl>|out<osl>|c<concurrency>
    load_mode TEXT NOT NULL,
    isl REAL NOT NULL CHECK (isl >= 0),     -- means over the requests, tokens
    osl REAL NOT NULL CHECK (osl >= 0),
    concurrency REAL CHECK (concurrency > 0),
    requests_per_s REAL CHECK (requests_per_s > 0),  -- offered; null: as fast as they are answered
    n_requests INTEGER CHECK (n_requests >= 0),      -- answered
    n_failed INTEGER CHECK (n_failed >= 0),
    output_tok_s REAL,                      -- targets, as in records.TARGET_UNITS; null: not measured
    total_tok_s REAL,
    req_s REAL,
    ttft_ms REAL,
    tpot_ms REAL,
    e2e_ms REAL,
    cold_start_s REAL,
    kv_usage_frac REAL,
    power_w REAL,
    energy_per_tok_j REAL,
    outcome TEXT NOT NULL CHECK (outcome IN ('ok', 'oom', 'incompatible', 'timeout', 'other')),
    window_start REAL,                      -- the steady stretch that the telemetry is of
    window_end REAL CHECK (window_end >= window_start),
    n_power_samples INTEGER,                -- wholly inside of it; fewer than 3: power is null
    details TEXT NOT NULL                   -- JSON: what else the source measured, percentiles
) STRICT;

CREATE INDEX benchmarks_job ON benchmarks (job_id);

-- one row for each start of a server that somebody watched
CREATE TABLE server_starts (
    content_hash TEXT PRIMARY KEY,          -- SHA-256 of which start it is; seen again, it replaces itself
    job_id TEXT,
    decision_id TEXT,
    started_at REAL NOT NULL,               -- of the process, Unix time in s
    observed_at REAL NOT NULL,
    vllm_version TEXT,
    torch_version TEXT,
    cuda_version TEXT,
    driver_version TEXT,
    model TEXT NOT NULL,
    model_facts TEXT,
    gpu TEXT NOT NULL,
    n_gpus INTEGER NOT NULL CHECK (n_gpus > 0),
    n_nodes INTEGER NOT NULL CHECK (n_nodes > 0),
    tensor_parallel INTEGER NOT NULL CHECK (tensor_parallel > 0),
    pipeline_parallel INTEGER NOT NULL CHECK (pipeline_parallel > 0),
    data_parallel INTEGER NOT NULL CHECK (data_parallel > 0),
    expert_parallel INTEGER NOT NULL CHECK (expert_parallel IN (0, 1)),
    precision TEXT NOT NULL,
    kv_cache_dtype TEXT NOT NULL,
    flags TEXT NOT NULL,
    outcome TEXT NOT NULL CHECK (outcome IN (
        'ok', 'oom', 'incompatible', 'timeout', 'cancelled', 'node_failure', 'other'
    )),
    weights_gib REAL,                       -- of one GPU, as the log says; null: not said
    activation_gib REAL,                    -- peak of the profiling run
    non_torch_gib REAL,
    graphs_gib REAL,
    kv_cache_gib REAL,
    n_kv_tokens INTEGER,
    kv_block_size INTEGER,
    load_s REAL,                            -- weights
    compile_s REAL,                         -- torch.compile
    graphs_s REAL,                          -- capture of CUDA graphs
    engine_s REAL,                          -- profiling, cache and warm-up together
    cold_start_s REAL,                      -- process started to first answer
    details TEXT NOT NULL
) STRICT;

CREATE INDEX server_starts_started_at ON server_starts (started_at);

-- one row for each job with GPUs that has started or ended; no names, no scripts
CREATE TABLE jobs (
    job_id TEXT NOT NULL,                   -- as sacct writes it: 4711, 4711_3, 4711+1
    submitted_at REAL NOT NULL,             -- Unix time in s; a requeued job has a row for each time
    user_key TEXT,                          -- hash under the site's key, or the name if so chosen
    partition TEXT NOT NULL,                -- in which it ran; the first it asked for if it did not
    gres_type TEXT,                         -- as Slurm names it, null for GPUs without a type
    n_gpus INTEGER NOT NULL CHECK (n_gpus > 0),
    n_nodes INTEGER NOT NULL,
    eligible_at REAL,
    started_at REAL,                        -- null: it never did
    ended_at REAL,                          -- null: it still runs
    seen_at REAL NOT NULL,                  -- up to when the hours of a running job are counted
    time_limit_min REAL,                    -- null: none
    state TEXT NOT NULL,                    -- COMPLETED, FAILED, TIMEOUT, ...
    exit_code INTEGER NOT NULL,
    signal INTEGER NOT NULL,
    serves TEXT CHECK (serves IN ('script', 'name', 'no')),  -- a vLLM server, by which sign;
                                            -- no: its script was read; null: not looked at
    decision_id TEXT,                       -- of the decision on it, where there was one
    PRIMARY KEY (job_id, submitted_at)
) STRICT, WITHOUT ROWID;

CREATE INDEX jobs_submitted_at ON jobs (submitted_at);
CREATE INDEX jobs_decision ON jobs (decision_id) WHERE decision_id IS NOT NULL;
CREATE INDEX jobs_serving ON jobs (submitted_at) WHERE serves IN ('script', 'name');

-- how GPUs were asked for and held, hour by hour; kept in step with jobs
CREATE TABLE demand (
    hour INTEGER NOT NULL,                  -- its start, Unix time in s
    partition TEXT NOT NULL,
    gres_type TEXT NOT NULL,                -- '' for GPUs without a type
    n_jobs INTEGER NOT NULL,                -- submitted in this hour
    n_gpus INTEGER NOT NULL,                -- that those asked for
    held_gpu_s REAL NOT NULL,               -- GPU seconds of running jobs that fall into this hour
    queued_gpu_s REAL NOT NULL,             -- GPU seconds that eligible jobs waited for
    PRIMARY KEY (hour, partition, gres_type)
) STRICT, WITHOUT ROWID;

-- waits follow from jobs
DROP TABLE waits;
CREATE VIEW waits AS
SELECT job_id, submitted_at, partition, gres_type, n_gpus,
       max(0.0, started_at - coalesce(eligible_at, submitted_at)) AS wait_s  -- eligible to started
FROM jobs WHERE started_at IS NOT NULL;

-- how each job that was decided on ended; one of an array for each task
CREATE TABLE outcomes (
    job_id TEXT NOT NULL,
    submitted_at REAL NOT NULL,
    decision_id TEXT NOT NULL,
    linked_by TEXT NOT NULL CHECK (linked_by IN ('tag', 'submission')),  -- AdminComment, or user,
                                            -- name and time of submission
    started_at REAL,
    ended_at REAL NOT NULL,
    state TEXT NOT NULL,
    outcome TEXT NOT NULL CHECK (outcome IN (
        'ok', 'oom', 'incompatible', 'timeout', 'cancelled', 'node_failure', 'other'
    )),
    evidence TEXT NOT NULL,                 -- which sign told: of the log, or of the accounting
    PRIMARY KEY (job_id, submitted_at)
) STRICT, WITHOUT ROWID;

CREATE INDEX outcomes_decision ON outcomes (decision_id);
CREATE INDEX outcomes_ended_at ON outcomes (ended_at);

-- how far each source was read; written in the transaction that wrote what was read
CREATE TABLE progress (
    source TEXT PRIMARY KEY,                -- sacct, or the path of a dump
    read_to REAL,                           -- accounting up to this Unix time is in
    n_bytes INTEGER,                        -- of a dump
    prefix_sha256 TEXT,                     -- of those bytes: a dump that only grew goes on there
    at REAL NOT NULL
) STRICT;
