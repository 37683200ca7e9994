#!/bin/sh
# qemu.sh core|lookup: runs on an emulated old CPU, where a newer instruction is a SIGILL.
#   core    the C++ tests on a CPU without AVX (Nehalem, 2008): the oldest that the code allows
#   lookup  Python, TensorFlow and one lookup without AVX2 (Sandy Bridge, 2011): TensorFlow's oldest
set -e
tools/system_packages.sh qemu-user
# Left out under emulation, which is about 50 times slower: the fuzz and the test of all 16-bit
# values, which run the code of the other tests over more inputs; damage, faults and kills of files
# and tiers, whose code has no instructions of its own; what measures or limits this process's
# memory, which is the emulator's; huge pages, whose advice the emulator does not pass on; and
# RocksDB, which is not ours.
left_out='Fuzz*:*RoundsToNearestEven:*Damage*:CraftedFiles*:Vanish*:*Fault*:Broken*:*Incremental*'
left_out="$left_out:*Cold*:Stores/*:FullDisk*:ThreadStarvation*:*rocksdb*:*RocksDb*"
left_out="$left_out:HugePages*:*MemoryOfManyKeys:*ATableSurvivesALackOfMemory"
case $1 in
core)
    # In parts side by side, on as many processors.
    jobs=$(nproc) parts=
    for part in $(seq 0 $((jobs - 1))); do
        GTEST_TOTAL_SHARDS=$jobs GTEST_SHARD_INDEX=$part qemu-x86_64 -cpu Nehalem \
            -E FE_FEW_CASES=1 build/core_tests/core_tests --gtest_brief=1 --gtest_filter="-$left_out" &
        parts="$parts $!"
    done
    for part in $parts; do wait "$part"; done
    ;;
lookup) qemu-x86_64 -cpu SandyBridge .venv/bin/python tests/packaging/lookup_on_old_cpu.py ;;
esac
