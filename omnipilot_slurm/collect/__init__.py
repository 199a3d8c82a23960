"""Shell: what running servers tell of themselves: their log, their metrics, the GPUs' power."""
