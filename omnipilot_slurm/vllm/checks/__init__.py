"""The start-up checks of vLLM, one module a kind; each returns a Check or None: does not apply."""
