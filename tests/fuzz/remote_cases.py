"""Valid calls of the ops of a lookup in tables of other tasks, and what their results must be."""

import numpy as np
import tensorflow as tf

import group_stages
import oracle.key_message
import oracle.lookup
import remote_stages
from fuzz import group_cases
from fuzz.group_cases import NUM_IDS, WIDTHS

LAYOUTS = 6  # few: a kernel is kept for each
MAX_WIDTH = 2**30  # of what numpy is given; wider tables have no rows


def make_layout(rng, tables, is_keyed):
    """One of a few layouts."""
    return remote_stages.random_layout(
        np.random.default_rng(int(rng.integers(LAYOUTS))), tables, is_keyed
    )


def ordinary_tables(rng, dtype=np.float32):
    """A table of each width."""
    return [rng.standard_normal((NUM_IDS, width)).astype(dtype) for width in WIDTHS]


def with_weights(rng, columns):
    """The arguments of the columns, weights as arrays."""
    given = group_stages.arguments(columns, [tf.float32, tf.float64][rng.integers(2)])
    return given | {"sp_weights": [w.numpy() for w in given["sp_weights"]]}


# --- The worker asks ---


def make_keys(rng):
    """Arguments of the op that makes messages."""
    columns = group_cases.make_columns(rng, must_be_weighted=False)
    layout = make_layout(rng, ordinary_tables(rng), bool(rng.integers(2)))
    return with_weights(rng, columns) | {
        "step": np.array(rng.integers(-1, 3)),
        "dtype": tf.float32,
        "num_outputs": len(columns),
        "num_servers": layout.num_servers,
        "part_rows": [rows for parts in layout.part_rows for rows in parts],
        "partition_strategies": list(layout.strategies),
        "ids_are_keys": layout.is_keyed,
        "prune": True,
        "fill_empty_row": bool(rng.integers(2)),
        **layout.attributes(),
    }


class Asked:
    """What the columns of a call ask the tables for."""

    def __init__(self, args):
        self.args = args
        self.pairs = group_cases.all_pairs(args)
        self.counts = [{} for _ in range(args["num_tables"])]
        for c, table in enumerate(args["table_of_column"]):
            counts = self.counts[table]
            for key in self.kept_ids(c):
                counts[key] = counts.get(key, 0) + 1
            if self.filled_id(c) is not None:
                counts.setdefault(self.filled_id(c), 0)
        ends = np.cumsum(args["num_parts"]).tolist()
        self.parts, self.positions = [], []
        for table, (end, size) in enumerate(zip(ends, args["num_parts"], strict=True)):
            self._add_table(table, args["part_rows"][end - size : end])

    def kept_ids(self, c):
        """Those that pruning leaves."""
        return self.pairs[c].pairs.ids[: len(self.pairs[c].kept)].tolist()

    def filled_id(self, c):
        """What fills the rows of a column, if anything does."""
        filled = self.pairs[c].pairs.ids[len(self.pairs[c].kept) :].tolist()
        return filled[0] if filled else None

    def _add_table(self, table, part_rows):
        keys = list(self.counts[table])
        strategy = self.args["partition_strategies"][table]
        place = oracle.lookup.partition(keys, part_rows, strategy)
        shards = place.permutation[:, 0].tolist()
        counts = [
            [self.counts[table][k] for k, at in zip(keys, shards, strict=True) if at == p]
            for p in range(len(part_rows))
        ]
        first = np.cumsum([0, *map(len, place.values)])
        self.positions.append(
            {k: int(first[p] + at) for k, (p, at) in zip(keys, place.permutation, strict=True)}
        )
        self.parts += [(v.tolist(), n) for v, n in zip(place.values, counts, strict=True)]

    def message(self, server):
        """Its words."""
        mine = [
            part
            for part, at in zip(self.parts, self.args["part_servers"], strict=True)
            if at == server
        ]
        counts = [of_part for _, of_part in mine] if self.args["ids_are_keys"] else None
        keys = [of_part for of_part, _ in mine]
        return oracle.key_message.words(int(self.args["step"]), keys, counts)

    def default_code(self, c):
        """Where the row is that fills those of a column."""
        filled = self.filled_id(c)
        if filled is None:
            return -1
        position = self.positions[self.args["table_of_column"][c]][filled]
        return position if self.args["default_ids"][c] >= 0 else -2 - position

    def column_positions(self, c):
        """Of its ids."""
        want = np.full(self.pairs[c].num_ids, -1)
        position = self.positions[self.args["table_of_column"][c]]
        want[self.pairs[c].kept] = [position[key] for key in self.kept_ids(c)]
        return want.tolist()


def check_keys(args, got):
    """Every output."""
    asked = Asked(args)
    for server, message in enumerate(got.messages):
        assert message.numpy().tolist() == asked.message(server)
    assert got.part_sizes.numpy().tolist() == [len(keys) for keys, _ in asked.parts]
    for c, positions in enumerate(got.positions):
        assert positions.numpy().tolist() == asked.column_positions(c)
        assert int(got.default_positions[c]) == asked.default_code(c)


# --- A server answers ---


def make_rows(kind):
    """Arguments of the op for tensors, variables or keyed tables."""

    def make_arguments(rng):
        keys = [rng.integers(0, NUM_IDS, rng.integers(0, 5)).tolist() for _ in WIDTHS]
        counts = [rng.integers(0, 9, len(of_table)).tolist() for of_table in keys]
        is_keyed = kind == "keyed"
        words = oracle.key_message.words(-1, keys, counts if is_keyed else None)
        args = {"message": np.array(words), "dims": list(WIDTHS)}
        args["table_names"] = [[], ["a", "", "c"]][rng.integers(2)]
        if kind == "tensors":
            dtype = [np.float32, np.float64, tf.bfloat16.as_numpy_dtype][rng.integers(3)]
            return args | {"tables": ordinary_tables(rng, dtype)}
        args["dtype"] = tf.float32
        if kind == "variables":
            return args | {"resources": [v.handle for v in group_cases.variables()]}
        are_inserted = [[], [True, False, True]][rng.integers(2)]
        args |= {"insert": bool(rng.integers(2)), "are_inserted": are_inserted}
        return args | {"resources": group_cases.keyed_tables()}

    return make_arguments


def keys_in(args, num_tables):
    """The keys of each table in a message that must be right."""
    keys, counts = oracle.key_message.read(args["message"].tolist())
    assert len(keys) == num_tables
    assert len(counts) == (sum(map(len, keys)) if "insert" in args else 0)
    return keys


def check_rows(args, got):
    """Rows bit by bit, and what else is sent."""
    tables = group_cases.tables_of(args)
    keys = keys_in(args, len(tables))
    assert args["dims"] == [table.shape[1] for table in tables]
    rows = [table[of_table].ravel() for table, of_table in zip(tables, keys, strict=True)]
    np.testing.assert_array_equal(got.rows.numpy().astype(np.float64), np.concatenate(rows))
    assert got.part_sizes.numpy().tolist() == [len(of_table) for of_table in keys]
    for of_table, sent in zip(keys, got[2], strict=True):
        assert sent.numpy().tolist() == of_table
    if "insert" in args:
        check_handles(args, got.handles)


def check_handles(args, handles_of_tables):
    """Keys that are inserted have a row."""
    inserts = args["are_inserted"] or [args["insert"]] * len(handles_of_tables)
    for handles, inserted in zip(handles_of_tables, inserts, strict=True):
        assert not inserted or np.all(handles.numpy() >= 0)


# --- The worker combines ---


def make_lookup(with_grads):
    """Arguments of the op that combines rows, or of its gradient."""

    def make_arguments(rng):
        columns = group_cases.make_columns(rng, must_be_weighted=False)
        dtype = [np.float32, np.float64, tf.bfloat16.as_numpy_dtype][rng.integers(3)]
        tables = ordinary_tables(rng, dtype)
        columns = [c._replace(ids=c.ids.tolist()) for c in columns]
        layout = make_layout(rng, tables, False)
        positions, defaults = remote_stages.want_positions(columns, layout)
        args = with_weights(rng, columns) | {
            "rows": remote_stages.want_rows(tables, columns, layout),
            "sp_values": [np.array(of_column, np.int32) for of_column in positions],
            "part_sizes": np.array(remote_stages.want_part_sizes(columns, layout)),
            "default_positions": np.array(defaults, np.int32),
            "dims": list(WIDTHS),
            "prune": True,
            "fill_empty_row": bool(rng.integers(2)),
            **layout.attributes(),
        }
        is_concat = bool(rng.integers(2))
        if with_grads:
            grads = group_cases.make_grads(rng, columns, dtype, is_concat)
            return args | {"combined_grads": grads}
        return args | {"num_outputs": 1 if is_concat else len(columns)}

    return make_arguments


def make_unpack(rng):
    """Arguments of the op that unpacks rows."""
    args = make_lookup(False)(rng)
    names = ("rows", "part_sizes", "num_tables", "num_parts", "part_servers", "dims")
    return {name: args[name] for name in names}


class Places:
    """Where the parts are in what the servers sent."""

    def __init__(self, args):
        self.of_servers = [0] * len(args["rows"])
        self.tables = []
        sizes = iter(zip(args["part_servers"], args["part_sizes"].tolist(), strict=True))
        for dim, num_parts in zip(args["dims"], args["num_parts"], strict=True):
            assert dim > 0
            assert num_parts > 0
            parts = [next(sizes) for _ in range(num_parts)]
            self.tables.append((dim, [self._place(s, size, dim) for s, size in parts]))
        assert next(sizes, None) is None
        assert self.of_servers == [len(rows) for rows in args["rows"]]

    def _place(self, server, num_rows, dim):
        assert num_rows >= 0
        first = self.of_servers[server]
        self.of_servers[server] += num_rows * dim
        return server, slice(first, first + num_rows * dim)

    def unpack(self, rows):
        """The rows of each table; one without rows is at most as wide as numpy can say."""
        return [
            np.concatenate([rows[server][values] for server, values in parts]).reshape(
                -1, min(dim, MAX_WIDTH)
            )
            for dim, parts in self.tables
        ]

    def pack(self, tables):
        """What each server sends."""
        servers = [np.zeros(size) for size in self.of_servers]
        for table, (_, parts) in zip(tables, self.tables, strict=True):
            flat, first = table.ravel(), 0
            for server, values in parts:
                size = values.stop - values.start
                servers[server][values] = flat[first : first + size]
                first += size
        return servers


def by_position(args):
    """The call as one of a grouped lookup in the rows."""
    assert len(args["default_positions"]) == len(args["table_of_column"])
    tables = Places(args).unpack(args["rows"])
    return args | {"tables": tables, "fill_empty_row": True}


def check_unpack(args, got):
    """Rows bit by bit."""
    wanted = zip(got, Places(args).unpack(args["rows"]), args["dims"], strict=True)
    for table, want, dim in wanted:
        assert table.shape == (len(want), dim)
        assert not len(want) or table.numpy().tobytes() == want.tobytes()


def make_ops(op_type, close):
    """An `op_type` for each op."""

    def check_gradient(args, got):
        of_call = by_position(args)
        grads = [np.zeros(table.shape) for table in of_call["tables"]]
        for grad, of_table in zip(grads, group_cases.sums(of_call), strict=True):
            for i, row in of_table.items():
                grad[i] = row
        for rows, want in zip(got, Places(args).pack(grads), strict=True):
            close(rows, want, group_cases.floats(of_call), 4096)

    def check_lookup(args, got):
        of_call = by_position(args)
        # Results as wide as that have no rows, and numpy has no such arrays.
        if max(args["dims"]) <= MAX_WIDTH:
            group_cases.Checks(close).forward(of_call, got)

    return [
        op_type("FusedEmbeddingRemoteKeys", make_keys, check_keys),
        op_type("FusedEmbeddingRemoteRows", make_rows("tensors"), check_rows),
        op_type("FusedEmbeddingResourceRemoteRows", make_rows("variables"), check_rows),
        op_type("EmbeddingVariableRemoteRows", make_rows("keyed"), check_rows),
        op_type("FusedEmbeddingRemoteLookup", make_lookup(False), check_lookup),
        op_type("FusedEmbeddingRemoteLookupGrad", make_lookup(True), check_gradient),
        op_type("FusedEmbeddingUnpackRows", make_unpack, check_unpack),
    ]
