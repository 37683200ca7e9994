"""Modules of 0.1 that were moved: importing one says where it is."""

import importlib
import importlib.util
import sys

import pytest

from fused_embedding import moved


@pytest.mark.parametrize("old", sorted(moved.MODULES))
def test_an_old_module_names_its_new_place(old):
    new = f"{moved.PACKAGE}.{moved.MODULES[old]}"
    with pytest.raises(ImportError, match=rf"{moved.PACKAGE}\.{old} was moved to {new}; "):
        importlib.import_module(f"{moved.PACKAGE}.{old}")
    assert importlib.util.find_spec(new) is not None


def test_names_of_a_module_that_is_a_package_now():
    message = r"fused_embedding\.lookup\.run_lookup was moved to fused_embedding\.lookup\.run\."
    with pytest.raises(ImportError, match=message):
        from fused_embedding.lookup import run_lookup  # noqa: F401
    with pytest.raises(ImportError, match="cannot import name 'run_lookups'"):
        from fused_embedding.lookup import run_lookups  # noqa: F401


def test_no_other_import_is_refused():
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'fused_embedding\.nowhere'"):
        importlib.import_module("fused_embedding.nowhere")
    assert importlib.util.find_spec("embedding_variable") is None


def test_public_modules_stay_where_they_were():
    # Those of 0.1, as users import them; the names in them are checked by their own tests.
    faces = ("nn", "raw_ops", "feature_column", "data", "damo", "one_embedding", "dynamicemb")
    packages = ("train", "keras", "keras.layers", "keras.optimizers", "convert", "compat.v1.nn")
    for name in (*faces, *packages, "contrib.layers", "compat.deeprec"):
        module = importlib.import_module(f"fused_embedding.{name}")
        assert dir(module), name


def test_it_is_installed_once():
    def num_installed():
        return sum(getattr(one, "__module__", "") == moved.__name__ for one in sys.meta_path)

    assert num_installed() == 1
    moved.install()
    assert num_installed() == 1
