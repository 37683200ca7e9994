"""Random inputs of each lookup, and what the oracle makes of them."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from benchmarks.gpu import core, lookups

from oracle import lookup as oracle
from oracle import step as step_oracle

DIMS = (1, 3, 4, 16, 33)


class Case(NamedTuple):
    """A lookup that any machine can be asked for.

    Attributes:
        build: Makes the lookup on a machine, and the arrays that its plan writes.
        want: What those arrays and the outputs must be, in float64.
        terms: How many numbers are added for one; 0: nothing is computed.
        errors: How far each number may be off, where more than a sum is computed.
        roundings: To its type, of what a number is computed from.
    """

    build: Callable[[core.Machine], tuple[core.Lookup, list[core.Array]]]
    want: list[np.ndarray]
    terms: int = 0
    errors: list[np.ndarray] | None = None
    roundings: int = 1


def results(case: Case, machine: core.Machine) -> list[np.ndarray]:
    """The planned arrays and the outputs of a case on a machine."""
    lookup, planned = case.build(machine)
    outputs = machine.run(lookup)
    return [array.numpy() for array in (*planned, *outputs)]


def assert_case(got: list[np.ndarray], case: Case) -> None:
    """What a case must give."""
    if case.errors is None:
        assert_right(got, case.want, case.terms)
        return
    for array, want, error in zip(got, case.want, case.errors, strict=True):
        assert array.shape == want.shape
        off = np.abs(array.astype(np.float64) - want) - error
        assert not (off > 0).any(), f"off by {off.max()} more than {error.max()} at most"


def assert_right(
    got: list[np.ndarray], want: list[np.ndarray], terms: int, roundings: int = 1
) -> None:
    """Integers exactly; floats within a rounding of each of `terms` terms of at most 4."""
    assert len(got) == len(want)
    for array, wanted in zip(got, want, strict=True):
        assert array.shape == np.shape(wanted)
        if array.dtype.kind != "f":
            np.testing.assert_array_equal(array, wanted)
            continue
        epsilon = np.finfo(array.dtype).eps
        in_float64 = array.dtype == np.float64
        computed_with = np.finfo(np.float64 if in_float64 else np.float32).eps
        atol = 4 * terms * (terms + 40) * computed_with if terms else 0
        rtol = roundings * epsilon if terms else 0
        np.testing.assert_allclose(array.astype(np.float64), wanted, rtol=rtol, atol=atol)


def gather(rng: np.random.Generator, size: int) -> Case:
    """Rows of a table of one of the types."""
    dtype = lookups.DTYPES[rng.integers(len(lookups.DTYPES))]
    table = rng.standard_normal((rng.integers(1, 50), DIMS[rng.integers(5)])).astype(dtype)
    ids = rng.integers(0, len(table), size)

    def build(machine):
        return lookups.gather(machine.upload(table), machine.upload(ids)), []

    return Case(build, [table[ids].reshape(-1).view(np.uint8)])


def prune_and_fill(rng: np.random.Generator, size: int) -> Case:
    """Pairs with ids and weights that are not valid."""
    num_rows = int(rng.integers(1, size + 2))
    ids, row_ids = rng.integers(-3, 50, size), rng.integers(0, num_rows, size)
    weights = rng.choice(np.array([-1, 0, 0.5, 2, np.nan], np.float32), size)
    default = (int(rng.integers(-1, 5)), 0.25)
    prune, prune_weights, fill = map(bool, rng.integers(0, 2, 3))
    indices = oracle.as_indices(row_ids)
    want = oracle.prune_and_fill(
        *(ids, indices, num_rows, weights),
        prune=prune,
        prune_weights=prune_weights,
        fill=fill,
        default_id=default[0],
        default_weight=default[1],
    )

    def build(machine):
        arrays = tuple(machine.upload(array) for array in (ids, indices, weights))
        rule = (prune, prune_weights, fill)
        lookup, is_row_empty = lookups.prune_and_fill(machine, arrays, num_rows, default, rule)
        return lookup, [is_row_empty]

    # Weights of no pairs are no weights to core.
    out_weights = want.weights if size else np.empty(0)
    return Case(build, [want.is_row_empty, want.ids, want.indices, out_weights])


def unique(rng: np.random.Generator, size: int) -> Case:
    """Ids with repeats, extreme ones among them."""
    extremes = [np.iinfo(np.int64).min, np.iinfo(np.int64).max, -1, 0]
    ids = rng.choice(np.array([*extremes, *rng.integers(-50, 50, size // 2 + 1)]), size)
    keys, _, counts = oracle.unique_with_counts(ids)

    def build(machine):
        return lookups.unique(machine, machine.upload(ids)), []

    # unique_idx is valid after the run, so it is compared in test_core_results.
    return Case(build, [np.asarray(keys, np.int64), np.asarray(counts, np.int32)])


def partition(rng: np.random.Generator, size: int) -> Case:
    """Ids of each strategy's shards."""
    strategy = lookups.STRATEGIES[rng.integers(4)]
    num_shards = int(rng.integers(1, 6))
    shard_rows = np.full(num_shards, 20) + (np.arange(num_shards) == 0)
    ids = rng.integers(0, 20 * num_shards, size)
    values, permutation = oracle.partition(ids, shard_rows, strategy)

    def build(machine):
        lookup = lookups.partition(machine, machine.upload(ids), shard_rows, strategy)
        return lookup, [lookup.used[1]]

    permutation = np.asarray(permutation, np.int32).reshape(-1, 2)
    return Case(build, [permutation, *(np.asarray(shard, np.int64) for shard in values)])


class _Pairs(NamedTuple):
    rows: np.ndarray
    unique_idx: np.ndarray
    row_ids: np.ndarray
    num_rows: int
    combiner: str
    weights: np.ndarray | None
    max_norm: float
    grad: np.ndarray

    def terms(self) -> int:
        """Of the largest sum of a row or a unique id."""
        counts = [np.bincount(numbers).max() for numbers in (self.row_ids, self.unique_idx)]
        return int(max(counts))

    def for_oracle(self) -> tuple:
        """What its functions take after the rows."""
        weights = np.ones(len(self.row_ids)) if self.weights is None else self.weights
        return self.combiner, weights, None if self.max_norm < 0 else self.max_norm

    def struct(self, machine: core.Machine, with_grad: bool) -> lookups.FePairs:
        """On a machine."""
        optional = {"weights": self.weights, "combined_grad": self.grad if with_grad else None}
        arrays = {k: None if v is None else machine.upload(v) for k, v in optional.items()}
        main = [machine.upload(array) for array in (self.rows, self.unique_idx, self.row_ids)]
        return lookups.pairs(*main, self.num_rows, self.combiner, max_norm=self.max_norm, **arrays)


def _pairs(rng: np.random.Generator, size: int) -> _Pairs:
    dtype = lookups.DTYPES[rng.integers(len(lookups.DTYPES))]
    num_unique, num_rows = int(rng.integers(1, size + 1)), int(rng.integers(1, size + 1))
    dim = DIMS[rng.integers(len(DIMS))]
    row_ids = rng.integers(0, num_rows, size)
    weights = rng.uniform(0.25, 2, size).astype(np.result_type(dtype, np.float32))
    return _Pairs(
        _values(rng, (num_unique, dim), dtype),
        rng.integers(0, num_unique, size).astype(np.int32),
        np.sort(row_ids) if rng.random() < 0.5 else row_ids,
        num_rows,
        lookups.COMBINERS[rng.integers(3)],
        weights if rng.random() < 0.5 else None,
        0.5 if rng.random() < 0.3 else -1.0,
        _values(rng, (num_rows, dim), dtype),
    )


def _values(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    return rng.uniform(-1, 1, shape).astype(dtype)


def post_lookup(rng: np.random.Generator, size: int) -> Case:
    """Pairs of each combiner, with and without weights and max_norm."""
    pairs = _pairs(rng, size)
    rows = pairs.rows.astype(np.float64)[pairs.unique_idx]
    want = oracle.post_lookup(rows, pairs.row_ids, pairs.num_rows, *pairs.for_oracle())

    def build(machine):
        return lookups.post_lookup(pairs.struct(machine, with_grad=False)), []

    return Case(build, [want.rows, np.asarray(want.feature_nums, np.int32)], pairs.terms())


def post_lookup_grad(rng: np.random.Generator, size: int) -> Case:
    """The gradient of such pairs."""
    pairs = _pairs(rng, size)
    rows = pairs.rows.astype(np.float64)[pairs.unique_idx]
    grad = pairs.grad.astype(np.float64)
    of_pairs = oracle.post_lookup_grad(grad, rows, pairs.row_ids, *pairs.for_oracle())
    want = oracle.merge(of_pairs, pairs.unique_idx, len(pairs.rows))

    def build(machine):
        return lookups.post_lookup_grad(pairs.struct(machine, with_grad=True)), []

    return Case(build, [want], pairs.terms())


class _GroupColumn(NamedTuple):
    table_number: int
    ids: np.ndarray
    row_ids: np.ndarray
    num_rows: int
    weights: np.ndarray | None
    combiner: str
    default_id: int
    max_norm: float
    grad: np.ndarray

    def for_oracle(self) -> tuple:
        """What its functions take after the table."""
        max_norm = None if self.max_norm < 0 else self.max_norm
        pairs = (self.ids, self.row_ids, self.num_rows, self.weights)
        return (*pairs, self.combiner, self.default_id, max_norm)

    def on(self, machine: core.Machine, table: core.Array) -> lookups.Column:
        """On a machine."""
        names = ("num_rows", "combiner", "max_norm", "default_id", "table_number")
        return lookups.Column(
            machine.upload(self.ids),
            machine.upload(self.row_ids),
            table,
            weights=None if self.weights is None else machine.upload(self.weights),
            combined_grad=machine.upload(self.grad),
            **{name: getattr(self, name) for name in names},
        )


class _Group(NamedTuple):
    tables: list[np.ndarray]
    columns: list[_GroupColumn]

    def terms(self) -> int:
        """Of the largest sum; each column adds at most all its pairs, and one that is filled."""
        return sum(len(column.ids) + column.num_rows for column in self.columns)

    def of_table(self, number: int) -> list[_GroupColumn]:
        """The columns of a table."""
        return [column for column in self.columns if column.table_number == number]

    def terms_of_id(self, number: int) -> int:
        """Of the largest sum of an id of a table; 0 is the id of rows that stay zero."""
        columns = self.of_table(number)
        used = [column.ids[column.ids >= 0] for column in columns]
        filled = [np.repeat(max(column.default_id, 0), column.num_rows) for column in columns]
        return int(np.bincount(np.concatenate([*used, *filled]).astype(np.int64)).max())

    def on(self, machine: core.Machine) -> list[lookups.Column]:
        """On a machine."""
        return self.over([machine.upload(table) for table in self.tables])

    def over(self, tables: list[core.Array]) -> list[lookups.Column]:
        """On the machine of `tables`."""
        machine = tables[0].machine
        return [column.on(machine, tables[column.table_number]) for column in self.columns]


def _group_column(rng: np.random.Generator, size: int, table: tuple) -> _GroupColumn:
    number, values = table
    is_one_hot = rng.random() < 0.4
    num_rows = size if is_one_hot else int(rng.integers(1, size + 1))
    row_ids = np.arange(size) if is_one_hot else rng.integers(0, num_rows, size)
    ids = rng.integers(-1 if rng.random() < 0.5 else 0, len(values), size)
    weights = rng.choice([0.5, 1, 1.5, 0, np.nan], size, p=[0.3, 0.3, 0.2, 0.1, 0.1])
    combiner = lookups.COMBINERS[rng.integers(3)]
    if combiner == "sum":
        weights = np.nan_to_num(weights)  # they are no reason to prune then
    weights = weights.astype(np.result_type(values.dtype, np.float32))
    return _GroupColumn(
        number,
        ids.astype(np.int32) if rng.random() < 0.5 else ids,
        np.sort(row_ids) if rng.random() < 0.5 else row_ids,
        num_rows,
        weights if rng.random() < 0.5 else None,
        combiner,
        int(rng.integers(-1, len(values))),
        0.5 if rng.random() < 0.3 else -1.0,
        _values(rng, (num_rows, values.shape[1]), values.dtype),
    )


def _group(rng: np.random.Generator, size: int) -> _Group:
    dtype = lookups.DTYPES[rng.integers(len(lookups.DTYPES))]
    tables = [
        _values(rng, (int(rng.integers(1, 20)), DIMS[rng.integers(5)]), dtype)
        for _ in range(rng.integers(1, 3))
    ]
    numbers = [*range(len(tables)), *rng.integers(0, len(tables), 2)]
    columns = [_group_column(rng, size, (int(t), tables[t])) for t in numbers]
    return _Group(tables, columns)


def group_lookup(rng: np.random.Generator, size: int) -> Case:
    """Columns of several tables."""
    group = _group(rng, size)
    want = [
        oracle.safe_lookup(group.tables[column.table_number], *column.for_oracle())
        for column in group.columns
    ]

    def build(machine):
        return lookups.group_lookup(group.on(machine)), []

    return Case(build, want, group.terms())


def _gradient(group: _Group, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Distinct ids of a table, and their rows."""
    table = group.tables[number]
    grads = [
        oracle.safe_lookup_grad(column.grad, table, *column.for_oracle())
        for column in group.of_table(number)
    ]
    ids, idx, _ = oracle.unique_with_counts(np.concatenate([grad.ids for grad in grads]))
    rows = oracle.merge(np.concatenate([grad.rows for grad in grads]), idx, len(ids))
    return np.asarray(ids, np.int64), rows


def group_lookup_grad(rng: np.random.Generator, size: int) -> Case:
    """The gradients of such tables."""
    group = _group(rng, size)
    want: list[np.ndarray] = []
    for number in range(len(group.tables)):
        want += _gradient(group, number)

    def build(machine):
        return lookups.group_lookup_grad(group.on(machine)), []

    return Case(build, want, group.terms())


RULES = {"sgd": (0.5,), "adagrad": (0.5, 0.25, 0), "row_wise_adagrad": (0.5, 0.25, 0)}
EPSILON = 0.25


def _slot(rng: np.random.Generator, rule: str, table: np.ndarray) -> list[np.ndarray]:
    """Like the table, or of each row, and then no narrower than float32; sgd has none."""
    if rule == "sgd":
        return []
    if rule == "adagrad":
        return [rng.uniform(0.5, 1, table.shape).astype(table.dtype)]
    dtype = np.result_type(table.dtype, np.float32)
    return [rng.uniform(0.5, 1, len(table)).astype(dtype)]


def _stepped(group: _Group, number: int, rule: str, slot: list[np.ndarray]) -> step_oracle.Stepped:
    """A table and its slot, of which the rows of the gradient are updated."""
    table = group.tables[number]
    ids, rows = _gradient(group, number)
    eps_of_values = np.finfo(table.dtype).eps
    eps_of_step = np.finfo(np.result_type(table.dtype, np.float32)).eps
    # As in assert_right, with terms of at most 8: clipping projects on rows.
    terms = group.terms_of_id(number)
    precision = step_oracle.Precision(
        8 * terms * (terms + 40) * eps_of_step, eps_of_values, eps_of_step
    )
    of_rows = step_oracle.step(
        *(rule, table[ids], slot[0][ids] if slot else None, rows),
        *(RULES[rule][0], EPSILON, precision),
    )
    before = step_oracle.Stepped(
        table.astype(np.float64),
        slot[0].astype(np.float64) if slot else None,
        np.zeros(table.shape),
        np.zeros(slot[0].shape) if slot else None,
    )
    for whole, part in zip(before, of_rows, strict=True):
        if whole is not None:
            whole[ids] = part
    return before


def step_case(rng: np.random.Generator, size: int, rule: str, is_fused: bool) -> Case:
    """Gradients of tables and a step: `want` are tables, then slots."""
    group = _group(rng, size)
    slots = [_slot(rng, rule, table) for table in group.tables]
    after = [_stepped(group, t, rule, slot) for t, slot in enumerate(slots)]
    slotted = after if rule != "sgd" else []

    def build(machine):
        tables = [machine.upload(table) for table in group.tables]
        on_machine = [[machine.upload(slot) for slot in of_table] for of_table in slots]
        step = lookups.Step(rule, RULES[rule], on_machine, is_fused)
        flat = [slot for of_table in on_machine for slot in of_table]
        return lookups.group_lookup_apply(group.over(tables), step), [*tables, *flat]

    return Case(
        build,
        [table.values for table in after] + [table.slot for table in slotted],
        group.terms(),
        [table.values_error for table in after] + [table.slot_error for table in slotted],
        roundings=4,
    )


def group_lookup_apply(rng: np.random.Generator, size: int) -> Case:
    """A step of any rule."""
    rule = list(RULES)[rng.integers(len(RULES))]
    return step_case(rng, size, rule, is_fused=bool(rng.random() < 0.7))


MAKERS = (
    gather,
    prune_and_fill,
    unique,
    partition,
    post_lookup,
    post_lookup_grad,
    group_lookup,
    group_lookup_grad,
    group_lookup_apply,
)
