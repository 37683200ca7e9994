"""Runs the same calls on an EmbeddingVariable and on the oracle, and compares what can be seen."""

import os
import re
import tempfile

import numpy as np
import pytest
import tensorflow as tf

import fused_embedding as fe
import oracle.table
from fused_embedding import raw_ops

COUNTED = (
    *("hits", "misses", "inserts", "refusals", "not_admitted"),
    *("evictions", "expirations", "erasures"),
)
LEARNING_RATE, MOMENTUM = 0.5, 0.5  # of numbers with few bits all results are exact


def debug_value(dim, dtype):
    """First values of fe.DebugInitializer."""
    return lambda key: np.full(dim, key % 100_000).astype(dtype)


class Pair:
    """A table and its oracle."""

    def __init__(self, dim=2, dtype=tf.float64, **options):
        self.dim, self.dtype = dim, dtype
        self.arguments = self.table_arguments(options)
        self.variable = self.make()
        is_bloom = isinstance(self.arguments["ev_option"].filter_option, fe.CBFFilter)
        config = oracle.table.Config(
            first_value=debug_value(dim, dtype.as_numpy_dtype),
            min_frequency=options.get("min_frequency", 0),
            forgets_counts=not is_bloom,
            no_permission_value=options.get("no_permission_value", 0.0),
            max_capacity=options.get("max_capacity"),
            eviction=options.get("eviction"),
            check_mode=options.get("check_mode", "error"),
        )
        self.oracle = oracle.table.Table(config)

    def table_arguments(self, options):
        """Arguments of fe.get_embedding_variable for options of the oracle's names."""
        return {"ev_option": table_option(options)}

    def make(self):
        """Another table of the same options."""
        return fe.get_embedding_variable(
            "pair",
            self.dim,
            value_dtype=self.dtype,
            initializer=fe.DebugInitializer(),
            **self.arguments,
        )

    def keys(self):
        """Keys with a row, as a set."""
        return set(self.variable.export().keys.numpy().tolist())

    def lookup(self, keys, counts=None, step=-1, insert=True):
        before = self.keys()
        counts = [1] * len(keys) if counts is None else counts

        def run():
            return raw_ops.EmbeddingVariableLookup(
                resource=self.variable.handle,
                keys=np.array(keys, np.int64),
                counts=np.array(counts, np.int32),
                step=tf.constant(step, tf.int64),
                insert=insert,
                dtype=self.dtype,
            ).embeddings.numpy()

        def want():
            if not insert:
                return self.oracle.find(keys)
            return self.oracle.find_or_insert(keys, counts, step, before - self.keys())

        self._both(run, want, (len(keys), self.dim))

    def momentum(self, keys, grads):
        raw_ops.EmbeddingVariableApply(
            resources=[self.variable.handle],
            keys=[np.array(keys, np.int64)],
            handles=[np.zeros(0, np.int64)],
            grads=[tf.constant(grads, self.dtype)],
            hyperparameters=[[LEARNING_RATE, MOMENTUM, 0.0]],
            rule="momentum",
            slot_prefixes=["Momentum"],
        )
        self.oracle.momentum(keys, grads, LEARNING_RATE, MOMENTUM)

    def upsert(self, keys, values):
        before = self.keys()
        self._both(
            lambda: self.variable.upsert(np.array(keys, np.int64), values),
            lambda: self.oracle.upsert(keys, values, before - self.keys()),
        )

    def erase(self, keys):
        assert int(self.variable.erase(np.array(keys, np.int64))) == self.oracle.erase(keys)

    def expire(self, step, steps_to_live, threshold):
        got = int(self.variable.expire(step, steps_to_live, threshold))
        assert got == self.oracle.expire(step, steps_to_live, threshold)

    def copy_by_import(self):
        """Goes on with a new table that has imported the content of this one."""
        content = self.variable.export_content()._asdict()
        self.variable = self.make()
        raw_ops.EmbeddingVariableImport(resource=self.variable.handle, **content)
        self.oracle.statistics.clear()

    def copy_by_file(self):
        """Goes on with a new table that was restored from a file of this one."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "table")
            raw_ops.EmbeddingVariableSave(resource=self.variable.handle, path=path)
            self.variable = self.make()
            raw_ops.EmbeddingVariableRestore(resource=self.variable.handle, paths=[path])
        self.oracle.statistics.clear()

    def _both(self, run, want, shape=None):
        """The same result, or the same refusal."""
        try:
            got = run()
        except tf.errors.ResourceExhaustedError as error:
            with pytest.raises(oracle.table.FullError, match=number_of_refusals(error)):
                want()
            return
        wanted = want()
        if shape is not None:
            np.testing.assert_array_equal(got, np.reshape(wanted, shape))

    def check(self):
        """Everything that the table can tell is what the oracle says."""
        content = self.variable.export_content()
        self._check_rows(content)
        assert int(content.step) == self.oracle.step
        counts = self._check_filtered(content)
        got = {name: int(value) for name, value in self.variable.statistics().items()}
        assert (got["size"], got["filtered"]) == (len(self.oracle.rows), len(counts))
        assert {name: got[name] for name in COUNTED} == {
            name: self.oracle.statistics[name] for name in COUNTED
        }

    def _check_rows(self, content):
        keys = sorted(self.oracle.rows)
        rows = [self.oracle.rows[key] for key in keys]
        np.testing.assert_array_equal(content.keys, keys)
        np.testing.assert_array_equal(content.frequencies, [row.frequency for row in rows])
        np.testing.assert_array_equal(content.versions, [row.version for row in rows])
        shape = (len(rows), self.dim)
        np.testing.assert_array_equal(
            content.values, np.reshape([row.value for row in rows], shape)
        )
        assert content.slots.shape == (len(rows), self.dim if self.oracle.has_momentum else 0)
        if self.oracle.has_momentum:
            np.testing.assert_array_equal(
                content.slots, np.reshape([row.momentum for row in rows], shape)
            )

    def _check_filtered(self, content):
        """Returns the counts of keys that the filter has not admitted."""
        counts = self.oracle.counts if self.oracle.config.forgets_counts else {}
        filtered = sorted(counts)
        np.testing.assert_array_equal(content.filtered_keys, filtered)
        np.testing.assert_array_equal(
            content.filtered_frequencies, [counts[key].frequency for key in filtered]
        )
        np.testing.assert_array_equal(
            content.filtered_versions, [counts[key].version for key in filtered]
        )
        return counts


def number_of_refusals(error):
    """Of the error of a full table."""
    return re.search(r"(\d+) keys do not fit into a table of max_capacity", str(error))[1]


def table_option(options, **others):
    """The EmbeddingVariableOption for options of the oracle's names."""
    filter_option = None
    if options.get("min_frequency"):
        filter_option = fe.CounterFilter(options["min_frequency"])
        if options.get("is_bloom"):
            filter_option = fe.CBFFilter(options["min_frequency"], 100_000, 1e-3)
    return fe.EmbeddingVariableOption(
        filter_option=filter_option,
        init_option=fe.InitializerOption(
            default_value_no_permission=options.get("no_permission_value", 0.0)
        ),
        max_capacity=options.get("max_capacity"),
        eviction=options.get("eviction"),
        check_mode=options.get("check_mode", "error"),
        **others,
    )
