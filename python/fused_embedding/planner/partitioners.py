"""Chooses how many shards each table has, and the rank of each shard."""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from fused_embedding.planner.enumerators import ShardingOption
from fused_embedding.planner.errors import PlannerError

MEMORY_WEIGHT = 0.25
_LUMPS = (0.05, 0.25, 1.0)  # most of a shard beside a rank's mean load, in each proposal
_MAX_MOVES = 300
_LIGHT_RANKS = 4  # that a heavy rank's shards are tried on
# Every assignment of a table is tried against every other's up to these sizes.
_SMALL_WORLD = 4
_SMALL_TABLES = 16
_RESTARTS = 8

# Columns of loads.
SECONDS, DRAM, SSD = range(3)


@dataclasses.dataclass(frozen=True)
class Budget:
    """What a rank can take.

    Attributes:
        world_size: Number of ranks.
        dram_bytes: Memory of a rank.
        ssd_bytes: SSD of a rank.
        seconds: Seconds of a rank beside those of its shards.
    """

    world_size: int
    dram_bytes: float
    ssd_bytes: float
    seconds: float

    @property
    def most(self) -> np.ndarray:
        """`[3]` most seconds, memory and SSD of a rank's shards."""
        return np.array([np.inf, self.dram_bytes, self.ssd_bytes])


@dataclasses.dataclass(frozen=True)
class Placement:
    """Ranks of shards.

    Attributes:
        options: How each table is divided.
        ranks: For each table the ranks of its shards, ascending.
        loads: `[world_size, 3]` seconds, memory and SSD bytes of the shards of each rank.
    """

    options: list[ShardingOption]
    ranks: list[tuple[int, ...]]
    loads: np.ndarray


class Scale:
    """What a load is measured by: a rank's mean if every table had the fewest shards.

    Args:
        options: Of each table, from few shards to many.
        budget: Of a rank.
    """

    def __init__(self, options: Sequence[Sequence[ShardingOption]], budget: Budget) -> None:
        self.seconds_of_rank = budget.seconds
        total = sum((of_all_shards(one[0]) for one in options), np.zeros(3))
        mean = total / budget.world_size + np.array([budget.seconds, 0, 0])
        self.mean = np.where(mean > 0, mean, 1.0)
        self.memory = max(float(mean[DRAM] + mean[SSD]), 1.0)

    def costs(self, loads: np.ndarray) -> np.ndarray:
        """`[..., 2]` relative seconds and memory of `[..., 3]` loads."""
        seconds = (loads[..., SECONDS] + self.seconds_of_rank) / self.mean[SECONDS]
        return np.stack([seconds, (loads[..., DRAM] + loads[..., SSD]) / self.memory], axis=-1)

    def objective(self, loads: np.ndarray) -> float:
        """The largest relative seconds of a rank, and a quarter of the largest memory."""
        seconds, memory = self.costs(loads).max(axis=0)
        return float(seconds + MEMORY_WEIGHT * memory)


def load_of(option: ShardingOption) -> np.ndarray:
    """`[3]` load of one shard."""
    return np.array([option.seconds, option.dram_bytes, option.ssd_bytes])


def of_all_shards(option: ShardingOption) -> np.ndarray:
    """`[3]` load of all shards."""
    return load_of(option) * option.num_shards


class GreedyProposer:
    """Gives a table the fewest shards that are small beside a rank's mean load."""

    def proposals(
        self, options: Sequence[Sequence[ShardingOption]], budget: Budget
    ) -> Iterator[list[ShardingOption]]:
        """Yields an option for each table.

        Args:
            options: Of each table, from few shards to many.
            budget: Of a rank.

        Raises:
            PlannerError: If a shard of a table is larger than a rank, however many there are.
        """
        scale = Scale(options, budget)
        seen = []
        for lump in _LUMPS:
            proposal = [_fewest(one, lump * scale.mean, budget) for one in options]
            counts = [option.num_shards for option in proposal]
            if counts not in seen:
                seen.append(counts)
                yield proposal


def _fewest(options: Sequence[ShardingOption], most: np.ndarray, budget: Budget) -> ShardingOption:
    fitting = [option for option in options if np.all(load_of(option) <= budget.most)]
    if not fitting:
        best = options[-1]
        lacking = np.maximum(load_of(best) - budget.most, 0)
        raise PlannerError(
            f"the table {best.name!r} does not fit: in {best.num_shards} shards each needs "
            f"{best.dram_bytes:.0f} bytes of memory and {best.ssd_bytes:.0f} of SSD, and a rank "
            f"has {budget.dram_bytes:.0f} and {budget.ssd_bytes:.0f}; {lacking[DRAM]:.0f} and "
            f"{lacking[SSD]:.0f} bytes are lacking; raise ddr_cap, ssd_cap or world_size"
        )
    small = (option for option in fitting if np.all(load_of(option) <= most))
    return next(small, fitting[-1])


class GreedyPartitioner:
    """Places the largest shards first, each where the load is low in what the shard needs most.

    Then shards of the heaviest rank are moved to light ranks, or exchanged with theirs, while the
    objective falls. With up to 4 ranks and 16 tables, pairs of tables try all their assignments.
    """

    def partition(
        self,
        proposal: Sequence[ShardingOption],
        options: Sequence[Sequence[ShardingOption]],
        budget: Budget,
    ) -> Placement:
        """Places the shards of tables.

        Args:
            proposal: How each table is divided.
            options: How each could be divided, from few shards to many.
            budget: Of a rank; it is never exceeded.

        Returns:
            The placement.

        Raises:
            PlannerError: If no place for a shard was found.
        """
        scale = Scale(options, budget)
        is_small = budget.world_size <= _SMALL_WORLD and len(proposal) <= _SMALL_TABLES
        placed: Placement | None = None
        try:
            placed = _place(proposal, budget, scale)
        except PlannerError:
            if not is_small:
                raise
            found = _search(None, options, budget, scale)
            if found is None:
                raise
            return found
        _Moves(placed, budget, scale).run()
        return (is_small and _search(placed, options, budget, scale)) or placed


def _place(proposal: Sequence[ShardingOption], budget: Budget, scale: Scale) -> Placement:
    loads = np.zeros([budget.world_size, 3])
    ranks: list[tuple[int, ...]] = [()] * len(proposal)
    shards = np.array([load_of(option) for option in proposal]).reshape(-1, 3)
    relative = shards / scale.mean
    for index in np.argsort(-relative.max(axis=1, initial=0), kind="stable"):
        option = proposal[index]
        if not option.num_shards:
            continue
        has_room = np.all(loads + shards[index] <= budget.most, axis=1)
        if has_room.sum() < option.num_shards:
            raise _no_room(option, loads, budget, int(has_room.sum()))
        # The sum of squared loads grows by twice this product, so loads stay alike in each kind.
        score = (loads / scale.mean) @ relative[index]
        score = np.where(has_room, score, np.inf)
        chosen = np.sort(np.argsort(score, kind="stable")[: option.num_shards])
        loads[chosen] += shards[index]
        ranks[index] = tuple(chosen.tolist())
    return Placement(list(proposal), ranks, loads)


def _no_room(
    option: ShardingOption, loads: np.ndarray, budget: Budget, num_found: int
) -> PlannerError:
    missing = loads + load_of(option) - budget.most
    lacking = np.sort(np.maximum(missing[:, DRAM], 0) + np.maximum(missing[:, SSD], 0))
    return PlannerError(
        f"the table {option.name!r} does not fit: {option.num_shards} shards of "
        f"{option.dram_bytes:.0f} bytes of memory and {option.ssd_bytes:.0f} of SSD, but "
        f"{num_found} ranks have room beside other tables; {lacking[option.num_shards - 1]:.0f} "
        "bytes are lacking; raise ddr_cap, ssd_cap or world_size"
    )


class _Moves:
    """Moves and exchanges shards of the heaviest rank while the objective falls."""

    def __init__(self, placed: Placement, budget: Budget, scale: Scale) -> None:
        self._placed, self._budget, self._scale = placed, budget, scale
        self._tables_of = [
            {table for table, ranks in enumerate(placed.ranks) if rank in ranks}
            for rank in range(budget.world_size)
        ]
        shards = np.array([load_of(option) for option in placed.options]).reshape(-1, 3)
        self._shards = np.vstack([shards, np.zeros(3)])  # index -1: nothing

    def run(self) -> None:
        for _ in range(_MAX_MOVES):
            costs = self._scale.costs(self._placed.loads)
            heavy = {int(costs[:, 0].argmax()), int(costs[:, 1].argmax())}
            light = np.argsort(costs @ [1, MEMORY_WEIGHT], kind="stable")[:_LIGHT_RANKS]
            pairs = [(high, int(low)) for high in sorted(heavy) for low in light if high != low]
            if not any(self._exchange(*pair) for pair in pairs):
                return

    def _exchange(self, high: int, low: int) -> bool:
        """Moves a shard from a rank to another, and maybe one back, if the objective falls."""
        given = np.array([-1, *sorted(self._tables_of[high] - self._tables_of[low])])
        taken = np.array([-1, *sorted(self._tables_of[low] - self._tables_of[high])])
        change = self._shards[taken][None, :] - self._shards[given][:, None]
        before = self._placed.loads
        loads = np.stack([before[high] + change, before[low] - change], axis=2)
        costs = self._scale.costs(loads).max(axis=2) @ [1, MEMORY_WEIGHT]
        costs[~np.all(loads <= self._budget.most, axis=(2, 3))] = np.inf
        row, column = np.unravel_index(costs.argmin(), costs.shape)
        after = before.copy()
        after[[high, low]] = loads[row, column]
        if self._scale.objective(after) >= self._scale.objective(before) * (1 - 1e-9):
            return False
        before[:] = after
        self._record(int(given[row]), high, low)
        self._record(int(taken[column]), low, high)
        return True

    def _record(self, table: int, source: int, target: int) -> None:
        if table >= 0:
            ranks = {*self._placed.ranks[table]} - {source} | {target}
            self._placed.ranks[table] = tuple(sorted(ranks))
            self._tables_of[source].discard(table)
            self._tables_of[target].add(table)


# --- Small worlds: all assignments of pairs of tables ---


@dataclasses.dataclass(frozen=True)
class _Assignments:
    """All ways to place one table: `loads` is `[n, world_size, 3]`."""

    options: list[ShardingOption]
    ranks: list[tuple[int, ...]]
    loads: np.ndarray

    def index(self, option: ShardingOption, ranks: tuple[int, ...]) -> int:
        """The number of an assignment."""
        pairs = enumerate(zip(self.options, self.ranks, strict=True))
        return next(i for i, pair in pairs if pair[0] is option and pair[1] == ranks)


def _assignments(options: Sequence[ShardingOption], world_size: int) -> _Assignments:
    chosen, ranks = [], []
    for option in options:
        for one in itertools.combinations(range(world_size), option.num_shards):
            chosen.append(option)
            ranks.append(one)
    loads = np.zeros([len(ranks), world_size, 3])
    for index, (option, one) in enumerate(zip(chosen, ranks, strict=True)):
        loads[index, list(one)] = load_of(option)
    return _Assignments(chosen, ranks, loads)


def _search(
    placed: Placement | None,
    options: Sequence[Sequence[ShardingOption]],
    budget: Budget,
    scale: Scale,
) -> Placement | None:
    """Descends from the placement and from random ones, two tables at a time; None: none fits."""
    choices = [_assignments(one, budget.world_size) for one in options]
    rng = np.random.default_rng(0)
    starts = [[int(rng.integers(len(c.ranks))) for c in choices] for _ in range(_RESTARTS)]
    if placed:
        pairs = zip(choices, placed.options, placed.ranks, strict=True)
        starts.append([choice.index(option, ranks) for choice, option, ranks in pairs])
    cost, best = min(_descend(choices, one, budget, scale) for one in starts)
    if np.isinf(cost):
        return None
    return _chosen(choices, best, budget)


def _chosen(choices: Sequence[_Assignments], at: Sequence[int], budget: Budget) -> Placement:
    picked = list(zip(choices, at, strict=True))
    loads = np.sum([c.loads[i] for c, i in picked], axis=0) + np.zeros([budget.world_size, 3])
    return Placement([c.options[i] for c, i in picked], [c.ranks[i] for c, i in picked], loads)


def _descend(
    choices: list[_Assignments], start: list[int], budget: Budget, scale: Scale
) -> tuple[float, list[int]]:
    """The objective and the choices where no pair of tables can improve them."""
    at = list(start)
    if len(choices) < 2:
        loads = sum((c.loads for c in choices), np.zeros([1, budget.world_size, 3]))
        costs = _costs(loads, budget, scale)
        return float(costs.min()), [int(costs.argmin())] * len(choices)
    total = np.sum([c.loads[i] for c, i in zip(choices, at, strict=True)], axis=0)
    best = float(_costs(total, budget, scale))
    has_improved = True
    while has_improved:
        has_improved = False
        for i, j in itertools.combinations(range(len(choices)), 2):
            rest = total - choices[i].loads[at[i]] - choices[j].loads[at[j]]
            loads = rest + choices[i].loads[:, None] + choices[j].loads[None, :]
            costs = _costs(loads, budget, scale)
            if costs.min() < best * (1 - 1e-9) or (np.isinf(best) and np.isfinite(costs.min())):
                row, column = np.unravel_index(costs.argmin(), costs.shape)
                at[i], at[j] = int(row), int(column)
                total, best, has_improved = loads[row, column], float(costs.min()), True
    return best, at


def _costs(loads: np.ndarray, budget: Budget, scale: Scale) -> np.ndarray:
    """`[...]` objective of `[..., world_size, 3]` loads; infinite above the budget."""
    costs = scale.costs(loads).max(axis=-2) @ [1, MEMORY_WEIGHT]
    fits = np.all(loads <= budget.most, axis=(-1, -2))  # bytes are integers: sums are exact
    return np.where(fits, costs, np.inf)
