"""Tables without a vocabulary beside others, their growth, and many tables beside one."""
