"""What a load took and freed does not stay with the process."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import threading
from omnipilot_slurm.daemon.memory import give_back, share_one_heap

def resident_kib():
    with open("/proc/self/status") as status:
        return int(status.read().partition("VmRSS:")[2].split()[0])

def fill():
    blocks = [bytes(2000) for _ in range(20_000)]
    kept.append(blocks[-1])  # what stays at the end of the heap keeps all before it

share_one_heap()
kept, before = [], resident_kib()
thread = threading.Thread(target=fill)
thread.start()
thread.join()
held = resident_kib()
give_back()
print(held - before, resident_kib() - before)
"""


def test_memory_that_a_thread_has_freed_goes_back_to_the_system() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True
    )
    held_kib, left_kib = map(int, done.stdout.split())
    assert held_kib > 20_000
    assert left_kib < held_kib / 4
