"""Feature columns: from the features of a batch to its rows."""
