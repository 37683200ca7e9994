"""Programs over several tasks."""
