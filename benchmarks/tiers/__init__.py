"""Tables whose rows are partly on an SSD."""
