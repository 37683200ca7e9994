#!/bin/sh
# qemu.sh core|lookup: runs on an emulated old CPU, where a newer instruction is a SIGILL.
#   core    the C++ tests on a CPU without AVX (Nehalem, 2008): the oldest that the code allows
#   lookup  Python, TensorFlow and one lookup without AVX2 (Sandy Bridge, 2011): TensorFlow's oldest
set -e
tools/system_packages.sh qemu-user
# Left out under emulation, which is about 50 times slower: the fuzz and the test of all 16-bit
# values. They run the code of the other tests over more inputs. Also what measures or limits this
# process's memory, which is the emulator's. And RocksDB, which is not ours.
left_out='Fuzz*:*RoundsToNearestEven:*MemoryOfManyKeys:*ATableSurvivesALackOfMemory'
left_out="$left_out:*rocksdb*:*RocksDb*:Cold*Kill*:FullDisk*"
case $1 in
core) qemu-x86_64 -cpu Nehalem build/core_tests/core_tests --gtest_brief=1 --gtest_filter="-$left_out" ;;
lookup) qemu-x86_64 -cpu SandyBridge .venv/bin/python tests/packaging/lookup_on_old_cpu.py ;;
esac
