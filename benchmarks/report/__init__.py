"""Results: read, compared, drawn, and written into docs/performance.md and docs/results."""
