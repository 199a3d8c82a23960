"""Core: from one submission and what the site knows to what becomes of the job."""
