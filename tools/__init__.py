"""Small commands that build, export and check the book; each runs as `python -m tools.name`."""
