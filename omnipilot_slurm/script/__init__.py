"""Core: batch script text in, what it starts and what may be edited in it out."""
