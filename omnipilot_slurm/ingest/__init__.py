"""What comes in from outside: Slurm's accounting, job logs, result files of benchmarks."""
