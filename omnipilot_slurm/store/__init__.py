"""What the site keeps of its own: decisions, append-only, in SQLite."""
