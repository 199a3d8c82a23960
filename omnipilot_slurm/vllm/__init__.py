"""What the vLLM engine does with a configuration: flags, memory, start-up checks."""
