"""A Saver whose checkpoints keep the digest of a plan."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fused_embedding.checkpoint.saver import Saver
from fused_embedding.planner.plan_checks import check_prefix, write_beside

if TYPE_CHECKING:
    from fused_embedding.planner.plan import ShardingPlan


class PlannedSaver(Saver):
    """An fe.train.Saver that writes the digest of a plan, and refuses checkpoints of another one.

    `ShardingPlan.saver` makes it.
    """

    def __init__(
        self, plan: "ShardingPlan", *args: Any, from_plans: Sequence[str] = (), **kwargs: Any
    ) -> None:
        """Makes the Saver.

        Args:
            plan: The plan of the tables.
            *args: Arguments of fe.train.Saver.
            from_plans: Digests of other plans whose checkpoints are restored too: their tables are
                divided anew.
            **kwargs: Arguments of fe.train.Saver.
        """
        self._plan = plan
        self._from_plans = tuple(from_plans)
        super().__init__(*args, **kwargs)

    def save(self, *args: Any, **kwargs: Any) -> str | None:
        """Saves a checkpoint as fe.train.Saver does, and then the digest beside it.

        Returns:
            The prefix of the checkpoint.
        """
        prefix = super().save(*args, **kwargs)
        if prefix:
            write_beside(self._plan.digest, prefix)
        return prefix

    def restore(self, sess: Any, save_path: Any) -> None:
        """Restores a checkpoint of the plan, or one without a digest.

        Raises:
            ValueError: If it was saved with another plan, or does not exist.
        """
        check_prefix(self._plan.digest, str(save_path), self._from_plans)
        super().restore(sess, save_path)
