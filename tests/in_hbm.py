"""A plugin of pytest that moves the EmbeddingVariables of other tests to HBM, on the emulation.

    python -m pytest -p in_hbm tests/lookup tests/train tests/variable tests/checkpoint

Variables with an option that HBM has not stay in DRAM. What fails then asks for what a table on a
GPU refuses (keys admitted ahead), for names, messages or sizes of DRAM, or for graphs on disk,
which have the emulation's label. A wrong number is a fault.
"""

import fused_embedding as fe
from emulated_gpu import emulated_gpu
from fused_embedding.variable import options

IN_HBM = fe.StorageOption(fe.StorageType.HBM, storage_size=[64 << 20], experimental=True)
_check = options.EmbeddingVariableOption.__post_init__
_emulated = emulated_gpu()


def _fits(option):
    bounds = (option.max_capacity, option.eviction)
    is_bloom = getattr(option.filter_option, "max_element_size", 0) > 0
    is_in_dram = option.storage_option == fe.StorageOption()
    return is_in_dram and bounds == (None, None) and option.check_mode == "error" and not is_bloom


def _move_and_check(option):
    if _fits(option):
        object.__setattr__(option, "storage_option", IN_HBM)
    _check(option)


def pytest_configure(config):
    """Begins the emulation."""
    del config
    _emulated.__enter__()
    options.EmbeddingVariableOption.__post_init__ = _move_and_check


def pytest_unconfigure(config):
    """Ends it."""
    del config
    options.EmbeddingVariableOption.__post_init__ = _check
    _emulated.__exit__(None, None, None)
