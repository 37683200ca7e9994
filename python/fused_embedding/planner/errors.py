"""The error of a plan that cannot be made."""


class PlannerError(ValueError):
    """The tables do not fit: the message names a table and the bytes lacking."""
