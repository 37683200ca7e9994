"""What tests find in `caplog`: the fixture of tests/conftest.py."""

import gc

import tensorflow as tf

v1 = tf.compat.v1


def make_unused_op():
    with tf.Graph().as_default():
        v1.get_variable("v", [1])
        v1.report_uninitialized_variables()


def test_objects_of_earlier_tests_are_not_in_the_log(caplog):
    make_unused_op()
    gc.collect()
    assert caplog.records == []
    v1.logging.error("of this test")
    [record] = caplog.records
    assert record.getMessage() == "of this test"
