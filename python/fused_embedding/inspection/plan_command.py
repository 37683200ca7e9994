"""`fused-embedding plan MODEL.json`: plans the tables of a model, and prints the plan.

planned_model.py has the form of the file.
"""

from collections.abc import Sequence

from absl import flags, logging

from fused_embedding.inspection.checkpoint_tables import CheckpointError
from fused_embedding.inspection.id_log import LogError
from fused_embedding.inspection.planned_model import read_model
from fused_embedding.planner.plan import ShardingPlan

_COSTS = flags.DEFINE_string("costs", None, "File of fused-embedding calibrate; else defaults.")
_OUTPUT = flags.DEFINE_string("output", None, "File for the plan as JSON.")
_PLAN_PLOT = flags.DEFINE_string("plan_plot", None, "File for a plot: .png, .svg or .pdf.")


def main(argv: Sequence[str]) -> int:
    """Prints the plan; the exit status is 0, 1 if tables do not fit, 2 for unusable input."""
    if len(argv) != 2:
        logging.error(
            "one description of a model is required; usage: fused-embedding plan MODEL.json"
        )
        return 2
    try:
        planner, configs = read_model(argv[1], _COSTS.value)
    except (LogError, CheckpointError, ValueError, TypeError, OSError) as error:
        logging.error("%s", error)
        return 2
    try:
        plan = planner.plan(configs)
    except ValueError as error:
        logging.error("%s", error)
        return 1
    print(plan.report())
    return _write(plan)


def _write(plan: ShardingPlan) -> int:
    try:
        if _OUTPUT.value:
            plan.save(_OUTPUT.value)
        if _PLAN_PLOT.value:
            plan.plot(_PLAN_PLOT.value)
    except (OSError, ImportError, ValueError) as error:
        logging.error("%s", error)
        return 2
    return 0
