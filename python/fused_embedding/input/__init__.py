"""From serialized examples to tensors."""
