"""Where the rows of an EmbeddingVariable live, with DeepRec's names, fields and defaults."""

import dataclasses
import enum
import os
from collections.abc import Mapping
from typing import Any

# The ops that make tables, of which the last one's are in a GPU's memory.
GPU_HANDLE = "EmbeddingVariableGpuHandle"
TABLE_HANDLES = ("EmbeddingVariableHandle", GPU_HANDLE)
# The least memory of a table with a tier on an SSD: what its store needs, and room for some rows.
MIN_DRAM_BYTES = 16 << 20
# The least memory of a table on a GPU.
MIN_HBM_BYTES = 1 << 20


class StorageType(enum.Enum):
    """The tiers of a table. This release supports DRAM, DRAM with an SSD, and HBM as an experiment.

    `DRAM_SSD` and `SSD` are aliases of DeepRec's `DRAM_SSDHASH` and `SSDHASH`. All four mean the
    same: rows are read and updated in DRAM, and the SSD holds the rows that do not fit there.
    """

    DRAM = "DRAM"
    HBM = "HBM"
    PMEM_MEMKIND = "PMEM_MEMKIND"
    PMEM_LIBPMEM = "PMEM_LIBPMEM"
    LEVELDB = "LEVELDB"
    SSDHASH = "SSDHASH"
    HBM_DRAM = "HBM_DRAM"
    HBM_DRAM_PMEM = "HBM_DRAM_PMEM"
    HBM_DRAM_LEVELDB = "HBM_DRAM_LEVELDB"
    HBM_DRAM_SSDHASH = "HBM_DRAM_SSDHASH"
    HBM_DRAM_PMEM_LEVELDB = "HBM_DRAM_PMEM_LEVELDB"
    HBM_DRAM_PMEM_SSDHASH = "HBM_DRAM_PMEM_SSDHASH"
    DRAM_PMEM = "DRAM_PMEM"
    DRAM_LEVELDB = "DRAM_LEVELDB"
    DRAM_SSDHASH = "DRAM_SSDHASH"
    DRAM_PMEM_LEVELDB = "DRAM_PMEM_LEVELDB"
    DRAM_PMEM_SSDHASH = "DRAM_PMEM_SSDHASH"
    SSD = "SSDHASH"
    DRAM_SSD = "DRAM_SSDHASH"


class CacheStrategy(enum.Enum):
    """Which row a full tier evicts or demotes: the one used longest ago, or least often."""

    LRU = "lru"
    LFU = "lfu"


@dataclasses.dataclass(frozen=True)
class StorageOption:
    """Where the rows of a table are stored: docs/storage_tiers.md.

    Attributes:
        storage_type: None and StorageType.DRAM: all rows in memory. StorageType.DRAM_SSD,
            DRAM_SSDHASH, SSD and SSDHASH: rows that exceed `storage_size` are on an SSD.
        storage_path: Folder on the SSD, made if it does not exist; each table makes its own folder
            in it. It is local scratch: only checkpoints outlive the process. Must be None without
            an SSD.
        storage_size: The first number is the limit of a table's memory in bytes, at least 16 MiB;
            with HBM that of the GPU's memory, at least 1 MiB. Further numbers are ignored, because
            the space on the SSD is not limited. In DRAM alone all numbers are ignored:
            `EmbeddingVariableOption.max_capacity` bounds a table.
        cache_strategy: Which rows are demoted to the SSD first.
        layout: Accepted and ignored: there is one layout.
        experimental: Must be True for StorageType.HBM, rows in the memory of a GPU, which no GPU
            has run yet: docs/gpu.md.

    Raises:
        NotImplementedError: For a storage_type with PMEM or LevelDB, for HBM with another tier, and
            for HBM without `experimental`.
        ValueError: For an SSD without storage_path or with less than 16 MiB of memory, HBM with
            less than 1 MiB, or a storage_path without an SSD.
        TypeError: If cache_strategy is not a CacheStrategy, with an SSD.

    >>> ssd = fe.StorageOption(fe.StorageType.DRAM_SSD, "/mnt/ssd/tables", [8 << 30])
    >>> ssd.dram_bytes >> 30
    8
    """

    storage_type: StorageType | None = None
    storage_path: str | os.PathLike[str] | None = None
    storage_size: tuple[int, ...] = (1 << 30,)
    cache_strategy: CacheStrategy = CacheStrategy.LFU
    layout: str | None = None
    experimental: bool = dataclasses.field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "storage_size", tuple(self.storage_size))
        if self.is_on_ssd:
            self._check_ssd()
            return
        if self.is_in_hbm:
            self._check_hbm()
        elif self.storage_type not in (None, StorageType.DRAM):
            given = getattr(self.storage_type, "name", self.storage_type)
            raise NotImplementedError(
                f"storage_type = {given} was given, but this release keeps rows in DRAM, in DRAM "
                "and on an SSD, or in HBM alone: it has no PMEM or LevelDB tier, and none beside "
                "HBM; pass StorageType.DRAM, or StorageType.DRAM_SSD with a storage_path"
            )
        if self.storage_path is not None:
            raise ValueError(
                f"storage_path = {self.storage_path!r} was given, but rows in memory are in no "
                "folder; leave it out, or pass StorageType.DRAM_SSD"
            )

    def _check_hbm(self) -> None:
        if not self.experimental:
            raise NotImplementedError(
                "storage_type = HBM was given, but tables in a GPU's memory are an experiment, of "
                "which a GPU has run tests alone; pass experimental=True to try it, or "
                "StorageType.DRAM"
            )
        size = self.storage_size[0] if self.storage_size else None
        if not isinstance(size, int) or size < MIN_HBM_BYTES:
            raise ValueError(
                f"storage_size = {list(self.storage_size)} was given with storage_type = HBM, but "
                "its first must be the bytes that the table may have in the GPU's memory, at least "
                f"{MIN_HBM_BYTES} (1 MiB)"
            )

    def _check_ssd(self) -> None:
        kind = self.storage_type.name if self.storage_type else ""
        if not self.storage_path or not isinstance(self.storage_path, str | os.PathLike):
            raise ValueError(
                f"storage_type = {kind} was given with storage_path = {self.storage_path!r}, but "
                "rows on an SSD need a folder there; pass the name of one"
            )
        object.__setattr__(self, "storage_path", os.fspath(self.storage_path))
        size = self.storage_size[0] if self.storage_size else None
        if not isinstance(size, int) or size < MIN_DRAM_BYTES:
            raise ValueError(
                f"storage_size = {list(self.storage_size)} was given with storage_type = {kind}, "
                f"but its first must be the bytes that the table may have in memory, at least "
                f"{MIN_DRAM_BYTES} (16 MiB)"
            )
        if not isinstance(self.cache_strategy, CacheStrategy):
            raise TypeError(
                f"cache_strategy must be fe.CacheStrategy.LFU or LRU, got {self.cache_strategy!r}"
            )

    @property
    def is_on_ssd(self) -> bool:
        """Whether rows that do not fit in DRAM are on an SSD."""
        return self.storage_type in (StorageType.SSD, StorageType.DRAM_SSD)

    @property
    def is_in_hbm(self) -> bool:
        """Whether rows are in the memory of a GPU."""
        return self.storage_type is StorageType.HBM

    @property
    def is_saved_whole(self) -> bool:
        """Whether an incremental save has all rows: the table tracks no changes."""
        return self.is_on_ssd or self.is_in_hbm

    @property
    def dram_bytes(self) -> int:
        """Limit of a table's memory in bytes; 0: no bound."""
        return self.storage_size[0] if self.is_on_ssd else 0


def storage_attributes(storage: StorageOption) -> dict[str, Any]:
    """The attrs of the op that makes a table, EmbeddingVariableHandle, for the storage of rows.

    Args:
        storage: The option.

    Returns:
        Attrs by name; those for HBM are of the op EmbeddingVariableGpuHandle.
    """
    if storage.is_in_hbm:
        return {"hbm_bytes": storage.storage_size[0]}
    return {
        "storage_path": storage.storage_path or "",
        "dram_bytes": storage.dram_bytes,
        "cache_strategy": storage.cache_strategy.value if storage.is_on_ssd else "lfu",
    }


def in_dram(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Copies the attrs of a table, for a table with all rows in DRAM.

    Args:
        attributes: Attrs of the op EmbeddingVariableHandle by name.

    Returns:
        The changed copy.
    """
    others = {name: value for name, value in attributes.items() if name != "hbm_bytes"}
    return {**others, **storage_attributes(StorageOption())}


def dram_attributes_of(op_type: str, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The attrs of EmbeddingVariableHandle for a table like that of another op, but in DRAM.

    Args:
        op_type: One of TABLE_HANDLES.
        attributes: Attrs of the op by name.

    Returns:
        The changed copy; a copy where the op is EmbeddingVariableHandle.
    """
    if op_type != GPU_HANDLE:
        return dict(attributes)
    admission = "counter" if attributes["min_frequency"] else "all"
    return {**in_dram(attributes), "admission": admission}
