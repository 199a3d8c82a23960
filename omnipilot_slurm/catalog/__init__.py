"""Facts about models and GPUs: catalogs in YAML, folders of checkpoints, names that resolve."""
