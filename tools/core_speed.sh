#!/bin/sh
# core_speed.sh BIN JOBS REVISION [OPTIONS]: builds core of REVISION and of this tree, and times one
# against the other (benchmarks/gpu/core_speed.py, whose options may follow). The JSON file is in
# build/core_speed.
# Not beside another measurement: neither the builds nor what they are measured by.
set -e
if [ "$1" != --locked ]; then
    exec "$1/python" -m benchmarks.harness.measuring_lock "$0" --locked "$@"
fi
shift
bin=$PWD/$1 jobs=$2
revision=$(git rev-parse --short=10 "$3")
shift 3
tools/system_packages.sh g++ >/dev/null
folder=build/core_speed
# build SOURCES FOLDER. Functions and loops begin at multiples of 64 bytes: without that, the same
# code at another place was up to 9 % slower in some rows.
build() {
    "$bin/cmake" -S "$1" -B "$2" -G Ninja -DCMAKE_MAKE_PROGRAM="$bin/ninja" -DFE_BUILD_OPS=OFF \
        -DFE_CUDA=OFF -DFE_ROCKSDB=OFF \
        "-DCMAKE_CXX_FLAGS=-falign-functions=64 -falign-loops=64" >/dev/null
    "$bin/cmake" --build "$2" -j "$jobs" --target core_emulated >"$2/build.log" ||
        (cat "$2/build.log" && exit 1)
}
sources=$folder/$revision/sources
mkdir -p "$sources"
git archive "$revision" | tar -x -C "$sources"
build "$sources" "$folder/$revision/build"
build . "$folder/build"
new=$(git rev-parse --short=10 HEAD)
[ -z "$(git status --porcelain tf_ops CMakeLists.txt)" ] || new="$new, modified"
"$bin/python" -m benchmarks.gpu.core_speed --old="$folder/$revision/build/core_emulated.so" \
    --new="$folder/build/core_emulated.so" --old_commit="$revision" --new_commit="$new" "$@"
