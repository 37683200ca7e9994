#!/bin/sh
# gpu.sh [--emulated | --built=FOLDER]: builds the CUDA core for the GPU of this machine, tests it,
# checks it with compute-sanitizer and measures it. Needs CUDA, CMake, Ninja and a Python with numpy
# and pytest; no network and no TensorFlow. Log and result go to $OUT, or build/gpu. COMMIT names
# what is measured: that commit, without changes. --built takes core_gpu.so and cuda_core_tests out
# of FOLDER, where another machine built them. --emulated runs the same stages on the processor, by
# tests/cuda_emulation: it shows that they work, and stores no figures.
out=${OUT:-build/gpu} python=${PYTHON:-python3}
mkdir -p "$out"
: >"$out/gpu.log"

# stage NAME SECONDS COMMAND...: runs it for at most so long, and keeps what it prints.
stage() {
    name=gpu-$1 seconds=$2
    shift 2
    "$python" tools/stage.py "$name" timeout "$seconds" "$@"
    result=$?
    { echo "=== $name" && cat "build/logs/$name.log"; } >>"$out/gpu.log"
    return $result
}
skip() {
    stage "$1" 5 sh -c 'echo "$0"; exit 77' "$2"
}

"$python" tools/stage.py --start
if [ "$1" = --emulated ]; then
    folder=build/core_tests library=core_emulated cpp_tests=cuda_emulation_tests has_gtest=ON
    set -- -DFE_BUILD_OPS=OFF
elif [ "${1#--built=}" != "$1" ]; then
    folder=${1#--built=} library=core_gpu cpp_tests=cuda_core_tests has_gtest=OFF
    [ -z "$(find "$folder" -name $cpp_tests -type f)" ] || has_gtest=ON
    set --
elif architecture=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null); then
    folder=build/gpu_build library=core_gpu cpp_tests=cuda_core_tests has_gtest=OFF
    architecture=$(echo "$architecture" | head -n 1 | tr -d .)
    echo '#include <gtest/gtest.h>' | c++ -E -x c++ - >/dev/null 2>&1 && has_gtest=ON
    set -- -DFE_BUILD_OPS=OFF -DFE_CUDA=ON -DFE_CUDA_ARCHITECTURES="$architecture-real"
else
    skip tests "there is no GPU here; tools/gpu.sh --emulated shows what would run"
    exit
fi

if [ $# != 0 ]; then
    cpp_targets=$cpp_tests
    [ $has_gtest = ON ] || cpp_targets=
    stage configure 60 cmake -S . -B $folder -G Ninja -DFE_BUILD_TESTS=$has_gtest "$@" || exit 1
    # shellcheck disable=SC2086  # none or one
    stage build 400 cmake --build $folder -j "$(nproc)" --target $library $cpp_targets || exit 1
fi

# What has no clock runs side by side: a machine may be lent for minutes.
export FE_CORE_LIBRARY="$PWD/$folder/$library.so"
set -- "$python" -m pytest -q -p no:cacheprovider --confcutdir=tests/core_api
stage tests 120 "$@" tests/core_api &
for tool in memcheck racecheck; do
    if [ $library = core_emulated ]; then
        skip $tool "compute-sanitizer checks GPUs; for the emulation: make sanitize"
    elif ! compute-sanitizer --version >/dev/null 2>&1; then
        skip $tool "there is no compute-sanitizer here"
    else
        stage $tool 120 compute-sanitizer --tool $tool --error-exitcode 1 \
            "$@" tests/core_api/test_core_results.py -k "gpu or many or bits" &
    fi
done
if [ $has_gtest = ON ]; then
    stage cpp-tests 120 "$(find "$folder" -name $cpp_tests -type f)" --gtest_brief=1 &
else
    skip cpp-tests "there is no googletest here: the C++ tests did not run"
fi
wait
stage benchmarks 200 "$python" -m benchmarks.gpu --library="$FE_CORE_LIBRARY" --output="$out" \
    ${COMMIT:+--commit="$COMMIT"}
"$python" tools/stage.py --summary >"$out/summary.txt"
status=$?
cat "$out/summary.txt" build/logs/gpu-benchmarks.log
exit $status
