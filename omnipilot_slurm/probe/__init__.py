"""Shell: benchmarks as jobs: the plan on disk, its Slurm scripts, and one task's run."""
