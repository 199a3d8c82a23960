"""omnipilotd: answers the shim over a Unix socket and never makes slurmctld wait."""
