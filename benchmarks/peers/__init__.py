"""What others have for the same work: torch, FBGEMM, recommenders-addons, Damo-Embedding."""
