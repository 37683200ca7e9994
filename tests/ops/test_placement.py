"""Which task an op is built for, and which one a table is in."""

import pytest
import tensorflow as tf

from fused_embedding.ops import placement


@pytest.mark.parametrize(
    ("of_table", "of_op", "is_other"),
    [
        ("/job:ps/task:1", "/job:ps/task:1", False),
        ("/job:ps/task:1", "/job:ps/task:0", True),
        ("/job:ps/task:1", "/job:ps", True),
        ("/job:ps/task:0", "/job:worker/task:0", True),
        ("/job:ps/task:0", "", True),
        # A job without a number of a task is its task 0.
        ("/job:ps", "/job:ps/task:0", False),
        ("/job:ps", "/job:ps/task:1", True),
        ("/job:ps/task:0", "/job:ps", False),
        # The only task of a local program, whatever is built.
        ("", "/job:worker/task:1", False),
        ("/job:localhost/task:0/device:CPU:0", "/job:worker/task:1", False),
    ],
)
def test_tasks_of_a_table_and_of_an_op(of_table, of_op, is_other):
    with tf.Graph().as_default(), tf.device(of_op):
        assert placement.is_in_another_task(of_table) == is_other
