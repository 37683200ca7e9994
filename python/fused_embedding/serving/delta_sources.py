"""Which table of a checkpoint each table of an export is, for fe.write_serving_delta."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from fused_embedding.checkpoint.changes import (
    Changes,
    read_changes_and_seeds,
    read_frequencies,
)
from fused_embedding.checkpoint.object_based import FILES
from fused_embedding.serving.applied_deltas import DeltaTable
from fused_embedding.serving.object_paths import SavedObjects

_OF_SAVERS = "-files"  # after the name of a table


class Sources:
    """The tables of a checkpoint that deltas of an export are made of.

    Args:
        checkpoint: Its prefix.
        objects: What it has.
        names: By the name of an EmbeddingVariable in the export: its name in the checkpoint.
    """

    def __init__(self, checkpoint: str, objects: SavedObjects, names: Mapping[str, str]) -> None:
        self._checkpoint, self._objects, self._names = checkpoint, objects, names

    def read(self, name: str, tables: Mapping[str, DeltaTable]) -> Iterator[tuple[Changes, int]]:
        """The changes and the seed of each partition of a variable.

        Args:
            name: Of an EmbeddingVariable of the export.
            tables: All of the export, by name.

        Raises:
            ValueError: If the checkpoint does not have it, or has another table by its name.
        """
        table = tables[name]
        source = self._source(table)
        has_seed = table.seed is not None  # those of older exports are not checked
        if has_seed:
            self._check_not_swapped(source, table, tables)
        read = read_changes_and_seeds(self._checkpoint, source, table.dim, table.dtype)
        for changes, seed in read:
            if has_seed:
                self._check_seed(source, table, seed, tables)
            yield changes, seed

    def frequencies(
        self, name: str, tables: Mapping[str, DeltaTable], keys: Sequence[np.ndarray]
    ) -> list[np.ndarray]:
        """How often keys have occurred, in each partition of a variable.

        Args:
            name: Of an EmbeddingVariable of the export.
            tables: All of the export, by name.
            keys: `[n]` int64 of each partition, which have rows.
        """
        return read_frequencies(self._checkpoint, self._source(tables[name]), keys)

    def _source(self, table: DeltaTable) -> str:
        """The name of a table in the checkpoint."""
        return self._names.get(table.name) or self._home(table) or table.name

    def _home(self, table: DeltaTable) -> str | None:
        """Where the checkpoint has a table when nobody says where; None: not known."""
        at_place = self._objects.tables_at(table.place)
        if len(at_place) == 1:
            return at_place.pop()
        known = (table.name + suffix in self._objects.shapes for suffix in (_OF_SAVERS, FILES))
        return table.name if any(known) else None

    def _check_seed(
        self, source: str, table: DeltaTable, seed: int, tables: Mapping[str, DeltaTable]
    ) -> None:
        if seed == table.seed:
            return
        others = [other.name for other in tables.values() if other.seed == seed]
        known = f", which the export has as {others[0]!r}" if others else ""
        raise ValueError(
            f"{table.name!r} of the export is another table than {source!r} of the checkpoint "
            f"{self._checkpoint}{known}: their seeds are {table.seed} and {seed}. Give each table "
            "its own name in names. If the training began anew, without a checkpoint of the tables "
            "that were exported, export them again"
        )

    def _check_not_swapped(
        self, source: str, table: DeltaTable, tables: Mapping[str, DeltaTable]
    ) -> None:
        """Tables of one seed are told apart by where the checkpoint has them."""
        home = self._home(table)
        for other in tables.values():
            is_others = other.seed == table.seed and self._home(other) == source
            if is_others and home not in (None, source):
                raise ValueError(
                    f"names has {source!r} for {table.name!r}, but the checkpoint "
                    f"{self._checkpoint} has {table.name!r} as {home!r}, and {source!r} is "
                    f"{other.name!r} of the export: leave both out of names"
                )
