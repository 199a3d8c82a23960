"""omnipilotd: answers the shim over a Unix socket and never makes slurmctld wait."""

import sys

# hashlib has a SHA-256 of its own; OpenSSL's library would take 3.5 MB of a daemon that may have 60
sys.modules.setdefault("_hashlib", None)  # type: ignore[arg-type]  # as the import system reads it
