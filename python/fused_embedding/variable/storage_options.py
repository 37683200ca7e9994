"""Where the rows of an EmbeddingVariable live, with DeepRec's names, fields and defaults."""

import dataclasses
import enum
import os
from collections.abc import Mapping
from typing import Any

# The least that a table with a tier on an SSD may have in memory: what its store needs, and room
# for rows.
MIN_DRAM_BYTES = 16 << 20


class StorageType(enum.Enum):
    """Tiers that a table lives in. This release has DRAM, and DRAM above an SSD.

    `DRAM_SSD` and `SSD` are other names of DeepRec's `DRAM_SSDHASH` and `SSDHASH`, and the two mean
    the same: rows are worked on in DRAM, and those that it has no room for are on the SSD.
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
    """Which row a full tier gives up: the one used longest ago, or least often."""

    LRU = "lru"
    LFU = "lfu"


@dataclasses.dataclass(frozen=True)
class StorageOption:
    """Where rows live: docs/storage_tiers.md.

    Attributes:
        storage_type: None and StorageType.DRAM: all in memory. StorageType.DRAM_SSD, DRAM_SSDHASH,
            SSD and SSDHASH: those that `storage_size` has no room for are on an SSD.
        storage_path: Folder on the SSD, made if there is none: each table has its own in it. Local
            scratch: only checkpoints outlive the process. Without an SSD it must be None.
        storage_size: Bytes, of which the first are what a table may have in memory, at least 16
            MiB; others are accepted, as the SSD is not limited. Without an SSD all are: a table is
            then bounded by `EmbeddingVariableOption.max_capacity`.
        cache_strategy: Which rows leave memory first.
        layout: Accepted; there is one layout.

    >>> ssd = fe.StorageOption(fe.StorageType.DRAM_SSD, "/mnt/ssd/tables", [8 << 30])
    >>> ssd.dram_bytes >> 30
    8
    """

    storage_type: StorageType | None = None
    storage_path: str | os.PathLike[str] | None = None
    storage_size: tuple[int, ...] = (1 << 30,)
    cache_strategy: CacheStrategy = CacheStrategy.LFU
    layout: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "storage_size", tuple(self.storage_size))
        if self.is_on_ssd:
            self._check_ssd()
            return
        if self.storage_type not in (None, StorageType.DRAM):
            given = getattr(self.storage_type, "name", self.storage_type)
            raise NotImplementedError(
                f"storage_type = {given} was given, but this release keeps rows in DRAM, or in "
                "DRAM and on an SSD: it has no HBM, PMEM or LevelDB tier; pass StorageType.DRAM, "
                "or StorageType.DRAM_SSD with a storage_path"
            )
        if self.storage_path is not None:
            raise ValueError(
                f"storage_path = {self.storage_path!r} was given, but rows in DRAM are in no "
                "folder; leave it out, or pass StorageType.DRAM_SSD"
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
        """Whether rows that DRAM has no room for are on an SSD."""
        return self.storage_type in (StorageType.SSD, StorageType.DRAM_SSD)

    @property
    def dram_bytes(self) -> int:
        """Bytes that a table may have in memory; 0: no bound."""
        return self.storage_size[0] if self.is_on_ssd else 0


def storage_attributes(storage: StorageOption) -> dict[str, Any]:
    """The attrs of the op EmbeddingVariableHandle that say where rows live.

    Args:
        storage: Their option.

    Returns:
        Attrs by name.
    """
    return {
        "storage_path": storage.storage_path or "",
        "dram_bytes": storage.dram_bytes,
        "cache_strategy": storage.cache_strategy.value if storage.is_on_ssd else "lfu",
    }


def in_dram(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Attrs of a table like that of `attributes` with all rows in DRAM.

    Args:
        attributes: Attrs of the op EmbeddingVariableHandle by name.

    Returns:
        Those of the copy.
    """
    return {**attributes, **storage_attributes(StorageOption())}
