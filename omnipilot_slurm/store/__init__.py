"""What the site keeps of its own, in one SQLite database.

| table | a row is | module |
|---|---|---|
| decisions | an answer at sbatch, append-only | decisions |
| outcomes | how a decided job ended | outcomes |
| launches | how the start of a server ended, for the launch prior | site_tables |
| jobs, demand, waits | accounting: a job with GPUs; GPUs by hour; how long jobs waited | jobs |
| choices | what a user made of a proposal | choices |
| benchmarks | a measured run, or a steady stretch of a running server | benchmarks |
| server_starts | a start that was watched: memory, times | server_starts |
| progress | how far a source was read | progress |

schema.sql describes every column. Writers open it with database.open_for_writing, which brings it
up to date. Every record_* function writes all or nothing, is a part of a transaction that is open
already, may be called again with the same rows, and says how many told something new.
"""
