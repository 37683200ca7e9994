import ctypes

import numpy as np
import pytest
from benchmarks.gpu import core, lookups
from core_cases import MAKERS, assert_right

CALLS = 150
INT64 = np.iinfo(np.int64)
# Small, or so large that no machine has the memory.
NUMBERS = (0, -1, 1, 5, 1 << 55, INT64.max, INT64.min)
ELEMENTS = (-1, -7, 1 << 31, 1 << 40, INT64.max, INT64.min)


def spoil_size(rng, holder, name):
    """Another size than the memory's, smaller than it, or no memory."""
    array = getattr(holder, name)
    choices = [(array.data, 0), (array.data, -1), (array.data, INT64.min), (None, array.size)]
    choices.append((array.data, max(array.size - 1, 0)))
    data, size = choices[rng.integers(len(choices))]
    setattr(holder, name, core.FeArray(data, size))


def spoil_number(rng, holder, name):
    value = NUMBERS[rng.integers(len(NUMBERS))]
    setattr(holder, name, ctypes.c_int64(value).value)


def spoil_flag(rng, holder, name):
    setattr(holder, name, int(rng.integers(-2, 6)))


def spoil_float(rng, holder, name):
    setattr(holder, name, float(rng.choice([np.nan, np.inf, -np.inf, 0, -1, 1e-300])))


SPOILERS = {
    core.FeArray: spoil_size,
    ctypes.c_int64: spoil_number,
    ctypes.c_int32: spoil_flag,
    ctypes.c_double: spoil_float,
}
# Without a wait for what only the data tells, a GPU gathers zeros for an id that the table lacks,
# and leaves out a pair that does not exist.
LENIENT = ("gather", "post_lookup", "post_lookup_grad")
IDENTITY = ("dtype", "ids_are_int32")  # of arrays that are there: another value is another memory


def holders(struct):
    """The structs whose fields describe the lookup."""
    if isinstance(struct, lookups.FeGroupApply):
        return [*holders(struct.group), struct]
    if isinstance(struct, lookups.FeGroup):
        return [struct.columns[c] for c in range(struct.num_columns)]
    return [struct]


def spoil_struct(seed, lookup):
    rng = np.random.default_rng(seed)
    of_lookup = holders(lookup.struct)
    holder = of_lookup[rng.integers(len(of_lookup))]
    fields = [field for field in holder._fields_ if field[0] not in IDENTITY]
    fields = [field for field in fields if field[1] in SPOILERS]
    name, kind = fields[rng.integers(len(fields))]
    SPOILERS[kind](rng, holder, name)
    return name


def elements_of(holder):
    """The arrays whose elements can be wrong."""
    names = ("ids", "row_ids", "unique_idx", "weights")
    return [name for name, kind in holder._fields_ if kind is core.FeArray and name in names]


def spoil_elements(seed, lookup):
    """Writes extreme integers, or NaN, into an input."""
    rng = np.random.default_rng(seed)
    of_lookup = [holder for holder in holders(lookup.struct) if elements_of(holder)]
    holder = of_lookup[rng.integers(len(of_lookup))]
    arrays = elements_of(holder)
    name = arrays[rng.integers(len(arrays))]
    array = getattr(holder, name)
    return name, array, rng


def write_elements(machine, lookup, seed):
    name, view, rng = spoil_elements(seed, lookup)
    arrays = [a for a in flat(lookup.used) if isinstance(a, core.Array) and a.address == view.data]
    if not arrays or not arrays[0].size:
        return name
    values = arrays[0].numpy().reshape(-1)
    at = rng.integers(0, values.size, 2)
    is_float = values.dtype.kind == "f"
    chosen = [np.nan, -np.inf] if is_float else [ELEMENTS[k] for k in rng.integers(0, 6, 2)]
    values[at] = np.array(chosen).astype(values.dtype)
    machine.copy(arrays[0].address, values.ctypes.data, arrays[0].num_bytes)
    return name


def flat(used):
    """All arrays of a lookup."""
    for item in used:
        if isinstance(item, lookups.Column):
            yield from (item.ids, item.row_ids, item.weights, item.table)
        elif isinstance(item, list | tuple):
            yield from flat(item)
        else:
            yield item


def outcome(machine, case, spoil):
    """The arrays, or the text of the error."""
    lookup, written = case.build(machine)
    spoil(machine, lookup)
    try:
        planned = machine.plan(lookup)
        # Of the sizes that the plan says, which may be others than those of the case.
        dtypes = [dtype for dtype, _ in lookup.outputs]
        sizes = enumerate(planned.sizes())
        outputs = [machine.empty((n,), dtypes[min(i, len(dtypes) - 1)]) for i, n in sizes]
        planned.run(outputs)
        machine.wait()
    except core.CoreError as error:
        return str(error)
    return [array.numpy() for array in (*written, *outputs)]


@pytest.mark.parametrize("maker", MAKERS, ids=lambda maker: maker.__name__)
@pytest.mark.parametrize("kind", ["struct", "elements"])
def test_a_wrong_input_is_an_error_or_gives_the_answer_of_the_cpu(gpu, cpu, maker, kind):
    num_errors = 0
    for seed in range(CALLS):
        case = maker(np.random.default_rng(seed), 12)

        def spoil(machine, lookup, seed=seed):
            if kind == "struct":
                spoil_struct(seed, lookup)
            else:
                write_elements(machine, lookup, seed)

        on_gpu, on_cpu = outcome(gpu, case, spoil), outcome(cpu, case, spoil)
        if isinstance(on_gpu, str):
            num_errors += 1
            assert on_gpu
            assert "CUDA cannot" not in on_gpu, on_gpu
            assert isinstance(on_cpu, str), f"seed {seed}: {on_gpu}, but the CPU has an answer"
        elif isinstance(on_cpu, str):
            assert maker.__name__ in LENIENT, f"seed {seed}: {on_cpu}, but the GPU has an answer"
            assert "outside [0" in on_cpu
        else:
            assert_right(on_gpu, on_cpu, case.terms + 12, case.roundings)
    # All values are ids to unique and to pruning.
    never = kind == "elements" and maker.__name__ in (*LENIENT, "unique", "prune_and_fill")
    assert num_errors > 0 or never


def test_errors_name_what_is_wrong(gpu):
    ids = gpu.upload(np.arange(3))
    lookup = lookups.unique(gpu, ids)
    lookup.struct.ids = core.FeArray(None, 3)
    with pytest.raises(core.CoreError, match="null pointer and the size 3"):
        gpu.run(lookup)
    with pytest.raises(core.CoreError, match="there is no lookup find"):
        gpu.plan(lookup._replace(name="find"))
    with pytest.raises(core.CoreError, match="no device memory for 36028797018963968 bytes"):
        gpu.allocate(1 << 55)
    planned = gpu.plan(lookups.unique(gpu, ids))
    with pytest.raises(core.CoreError, match="has 2 outputs, got 1"):
        planned.run([ids])
    with pytest.raises(core.CoreError, match="output 1 has 3 elements, got memory for 2"):
        planned.run([ids, gpu.empty((2,), np.int32)])


@pytest.mark.parametrize("default_id", [3, 1 << 55, INT64.max])
def test_a_default_id_that_the_table_lacks_is_not_read(gpu, cpu, default_id):
    for machine in (gpu, cpu):
        ids, row_ids = machine.upload(np.array([1])), machine.upload(np.array([0]))
        table = machine.upload(np.ones((3, 8), np.float32))
        column = lookups.Column(ids, row_ids, table, 2, max_norm=0.5, default_id=default_id)
        column.combined_grad = machine.upload(np.ones((2, 8), np.float32))
        for lookup in (lookups.group_lookup, lookups.group_lookup_grad):
            with pytest.raises(core.CoreError, match="fills row 1"):
                machine.run(lookup([column]))


def test_threads_are_counted(library):
    with pytest.raises(core.CoreError, match="num_threads must be 1 to 1024, got 0"):
        core.Machine(library, threads=0)
