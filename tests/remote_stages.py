"""The raw ops of a lookup in tables of other tasks, and what the oracle says they must give."""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

import fused_embedding as fe
import group_stages
import oracle.key_message
import oracle.lookup


class Layout(NamedTuple):
    """How tables are divided into parts, and which server has each part.

    Attributes:
        strategies: Of each table.
        part_rows: Of each table, the rows of each part; ignored where tables are keyed.
        servers: Of each table, the server of each part.
        num_servers: Some of them may have no part.
        is_keyed: Whether the tables are EmbeddingVariables.
    """

    strategies: list[str]
    part_rows: list[list[int]]
    servers: list[list[int]]
    num_servers: int
    is_keyed: bool = False

    def attributes(self):
        """What all ops of the worker are told of it."""
        return {
            "num_tables": len(self.strategies),
            "num_parts": [len(parts) for parts in self.servers],
            "part_servers": [server for parts in self.servers for server in parts],
        }

    def on_server(self, server):
        """Table and number of each part of a server, in the order of its message."""
        parts = [(t, p) for t, of_table in enumerate(self.servers) for p in range(len(of_table))]
        return [(t, p) for t, p in parts if self.servers[t][p] == server]


def one_server(tables):
    """The layout of whole tables that one server has."""
    return Layout(["div"] * len(tables), [[len(t)] for t in tables], [[0]] * len(tables), 1)


def random_layout(rng, tables, is_keyed=False, max_parts=4):
    """Tables in one to four parts on one to three servers."""
    layout = Layout([], [], [], int(rng.integers(1, 4)), is_keyed)
    for table in tables:
        num_parts = int(rng.integers(1, max_parts + 1))
        strategy = str(rng.choice(["mod_ev", "hash"] if is_keyed else ["div", "mod"]))
        layout.strategies.append(strategy)
        layout.part_rows.append(_part_rows(rng, strategy, len(table), num_parts))
        layout.servers.append(rng.integers(0, layout.num_servers, num_parts).tolist())
    return layout


def _part_rows(rng, strategy, num_rows, num_parts):
    if strategy == "mod":
        return [len(range(part, num_rows, num_parts)) for part in range(num_parts)]
    if strategy == "div":
        cuts = np.sort(rng.integers(0, num_rows + 1, num_parts - 1))
        return np.diff([0, *cuts, num_rows]).tolist()
    return [0] * num_parts


def part_of(layout, tables, table, part):
    """Rows of a part of an ordinary table."""
    rows, sizes = tables[table], layout.part_rows[table]
    if layout.strategies[table] == "mod":
        return rows[part :: len(sizes)]
    first = sum(sizes[:part])
    return rows[first : first + sizes[part]]


class Split(NamedTuple):
    """The distinct keys of one table, by part.

    Attributes:
        keys: Of each part, as the part knows them.
        counts: Of each part, occurrences of its keys.
        rows: Of each part, the ids by which the table knows its keys.
        position: Key -> where its row is in the rows of all parts.
    """

    keys: list[list[int]]
    counts: list[list[int]]
    rows: list[list[int]]
    position: dict[int, int]


def want_split(columns, layout):
    """What each table is asked for."""
    wanted = group_stages.want_keys(columns, len(layout.servers), not layout.is_keyed)
    return [_split(layout, table, *of_table) for table, of_table in enumerate(wanted)]


def _split(layout, table, keys, counts):
    place = oracle.lookup.partition(keys, layout.part_rows[table], layout.strategies[table])
    parts = place.permutation[:, 0].tolist()
    rows = [
        [key for key, at in zip(keys, parts, strict=True) if at == p]
        for p in range(len(place.values))
    ]
    in_order = [key for of_part in rows for key in of_part]
    return Split(
        [values.tolist() for values in place.values],
        [[counts[key] for key in of_part] for of_part in rows],
        rows,
        {key: position for position, key in enumerate(in_order)},
    )


def want_messages(columns, layout, step=-1):
    """The words to each server."""
    splits, messages = want_split(columns, layout), []
    for server in range(layout.num_servers):
        parts = layout.on_server(server)
        counts = [splits[t].counts[p] for t, p in parts] if layout.is_keyed else None
        keys = [splits[t].keys[p] for t, p in parts]
        messages.append(oracle.key_message.words(step, keys, counts))
    return messages


def want_part_sizes(columns, layout):
    """Keys of each part, table after table."""
    return [len(keys) for split in want_split(columns, layout) for keys in split.keys]


def want_positions(columns, layout):
    """Of each column's ids, and the code of its default id."""
    splits = want_split(columns, layout)
    positions, defaults = [], []
    for column in columns:
        position = splits[column.table].position
        pairs = zip(column.ids, group_stages.is_kept(column), strict=True)
        positions.append([position[int(i)] if kept else -1 for i, kept in pairs])
        defaults.append(_default_code(column, position, layout.is_keyed))
    return positions, defaults


def _default_code(column, position, is_keyed):
    if not group_stages.has_empty_rows(column):
        return -1
    if column.default_id is not None:
        return position[column.default_id]
    return -1 if is_keyed else -2 - position[0]


def want_rows(tables, columns, layout):
    """`[num_values]` what each server answers."""
    splits = want_split(columns, layout)
    dtype = np.asarray(tables[0]).dtype
    answers = []
    for server in range(layout.num_servers):
        rows = [tables[t][splits[t].rows[p]].ravel() for t, p in layout.on_server(server)]
        answers.append(np.concatenate([*rows, np.zeros(0, dtype)]).astype(dtype))
    return answers


def want_rows_grads(tables, columns, grads, layout):
    """`[num_values]` the gradient of each server's rows, and those of the weights."""
    splits = want_split(columns, layout)
    of_tables, of_weights = group_stages.want_gradients(tables, columns, grads)
    answers = []
    for server in range(layout.num_servers):
        rows = [of_tables[t][key] for t, p in layout.on_server(server) for key in splits[t].rows[p]]
        answers.append(np.concatenate([*rows, np.zeros(0)]))
    return answers, of_weights


def ask(columns, layout, step=-1, dtype=tf.float64, **args):
    """What the worker asks the servers for; all of the op's outputs."""
    given = group_stages.arguments(columns) | {
        "step": step,
        "dtype": dtype,
        "num_outputs": len(columns),
        "num_servers": layout.num_servers,
        "part_rows": [rows for parts in layout.part_rows for rows in parts],
        "partition_strategies": layout.strategies,
        "ids_are_keys": layout.is_keyed,
    }
    return fe.raw_ops.FusedEmbeddingRemoteKeys(**given | layout.attributes() | args)


def rows_of_tensors(tables, message, **args):
    """What a server answers that has these parts, tensors or variables; all outputs."""
    arguments = {"message": message, "dims": [int(np.prod(t.shape[1:])) for t in tables]} | args
    if not isinstance(tables[0], tf.Variable):
        return fe.raw_ops.FusedEmbeddingRemoteRows(tables=list(tables), **arguments)
    arguments = {"dtype": tables[0].dtype} | arguments
    handles = [table.handle for table in tables]
    return fe.raw_ops.FusedEmbeddingResourceRemoteRows(resources=handles, **arguments)


def answer(tables, layout, messages, kind=np.asarray):
    """The rows of each server of ordinary tables, `kind` of their parts."""
    answers = []
    for server, message in enumerate(messages):
        parts = [kind(part_of(layout, tables, t, p)) for t, p in layout.on_server(server)]
        # A server without parts is asked for nothing.
        rows = rows_of_tensors(parts, message).rows if parts else tf.zeros([0], tables[0].dtype)
        answers.append(rows)
    return answers


def worker_arguments(asked, tables, columns, layout, **args):
    """What the ops of the worker take once the rows are there, but for those rows."""
    given = group_stages.arguments(columns) | {
        "sp_values": asked.positions,
        "part_sizes": asked.part_sizes,
        "default_positions": asked.default_positions,
        "dims": [table.shape[1] for table in tables],
    }
    return given | layout.attributes() | args


def look_up(rows, concat=False, **worker_args):
    """Combined rows of each column."""
    num_outputs = 1 if concat else len(worker_args["table_of_column"])
    return fe.raw_ops.FusedEmbeddingRemoteLookup(rows=rows, num_outputs=num_outputs, **worker_args)


def gradient(grads, rows, **worker_args):
    """Gradients of each server's rows."""
    return fe.raw_ops.FusedEmbeddingRemoteLookupGrad(combined_grads=grads, rows=rows, **worker_args)


def unpack(rows, part_sizes, dims, num_parts, part_servers):
    """The rows of each table."""
    return fe.raw_ops.FusedEmbeddingUnpackRows(
        rows=rows,
        part_sizes=part_sizes,
        num_tables=len(dims),
        num_parts=num_parts,
        part_servers=part_servers,
        dims=dims,
    )


def weights_gradient(grads, rows, **worker_args):
    """Gradients of the weights, as the Python gradient has them."""
    names = ("part_sizes", "dims", "num_parts", "part_servers")
    layout = {name: worker_args.pop(name) for name in names}
    for name in ("num_tables", "default_positions"):
        worker_args.pop(name)
    worker_args["fill_empty_row"] = False
    return fe.raw_ops.FusedEmbeddingGroupLookupWeightsGrad(
        combined_grads=grads, tables=unpack(rows, **layout), **worker_args
    )


class Chain(NamedTuple):
    """All of a lookup in ordinary tables."""

    asked: Any
    rows: list[tf.Tensor]
    combined: list[tf.Tensor]
    worker_arguments: dict[str, Any]


def run(tables, columns, layout, kind=np.asarray, concat=False, **args):
    """Asks for keys, has the rows answered and combines them."""
    asked = ask(columns, layout, dtype=tf.as_dtype(tables[0].dtype), **args)
    rows = answer(tables, layout, asked.messages, kind)
    worker_args = worker_arguments(asked, tables, columns, layout, **args)
    return Chain(asked, rows, look_up(rows, concat, **worker_args), worker_args)
