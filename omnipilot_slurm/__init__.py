"""OmniPilot for Slurm: what a vLLM server will do on which GPUs, decided at sbatch."""

__version__ = "0.1.0"
