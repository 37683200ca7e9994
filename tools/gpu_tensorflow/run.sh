#!/bin/sh
# run.sh PIECES OUT COMMIT: in a copy of the repository on a machine with a GPU, unpacks the pieces of
# pack.py, the files all.* in the folder PIECES, and runs our ops under TensorFlow there. Logs and
# figures go to OUT; COMMIT is what the ops were built from.
pieces=$1 out=$2 commit=$3 tf=/tmp/tf
mkdir -p $tf "$out"
cat "$pieces"/all.?? | xz -T0 -dc | tar xf - -C $tf || exit 1
cp $tf/own/* python/fused_embedding/
# Programs that tests start find packages there whatever PYTHONPATH is.
ln -sfn $tf/site/* "$(echo $tf/py/lib/python3.*)/site-packages/"
export PYTHONHOME=$tf/py PYTHONPATH="$PWD/python:$PWD/tests:$PWD/tools:$PWD"
export LD_LIBRARY_PATH=$tf/py/lib:$tf/cuda TF_CPP_MIN_LOG_LEVEL=${TF_CPP_MIN_LOG_LEVEL:-1}
export TF_FORCE_GPU_ALLOW_GROWTH=true PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
python=$(ls $tf/py/bin/python3.*)

cat >$tf/first.py <<'EOF'
import tensorflow as tf

print(tf.config.list_physical_devices(), flush=True)
import fused_embedding as fe

print("kernels for GPUs:", fe.ops.cuda.has_kernels(), flush=True)
with tf.device("/GPU:0"):
    print(tf.add(tf.ones([2]), 1.0).device)
EOF
if ! timeout 60 "$python" $tf/first.py >"$out/first.log" 2>&1; then
    # Where it crashed.
    TF_CPP_MIN_LOG_LEVEL=0 timeout 90 cuda-gdb -batch -ex run -ex bt --args "$python" $tf/first.py \
        >"$out/crash.log" 2>&1
    tail -n 40 "$out/crash.log"
    exit 1
fi
cat "$out/first.log"

# Each group beside the others: tests take little of a GPU. A group that is not done in time ends as
# by Ctrl-C, so that its log has the failures until then.
tests() {
    timeout -s INT -k 15 "${SECONDS_OF_TESTS:-240}" "$python" -m pytest -q -p no:cacheprovider \
        --grids=values --basetemp=$tf/tests_"$1" -n "$2" --max-worker-restart=2 $3 \
        >"$out/$1.log" 2>&1 &
}
hbm="tests/variable/test_gpu_tables.py tests/checkpoint/test_gpu_checkpoints.py tests/table/test_gpu_model.py"
tests ops 4 "tests/ops tests/packaging/test_cuda_library.py tests/packaging/test_hbm_placement.py"
tests lookup 3 tests/lookup
tests columns 4 "tests/columns tests/acceleration"
tests train 4 "tests/train tests/fuzz $hbm"
tests serving 3 tests/serving
wait
for group in ops lookup columns train serving; do
    echo "$group: $(grep -E '[0-9]+ (passed|failed|errors?)' "$out/$group.log" | tail -n 1)"
    grep -E '^(FAILED|ERROR)' "$out/$group.log" | cut -c1-110 | head -n 40
done
timeout 120 "$python" -m benchmarks.gpu.tensorflow_steps --output="$out" --commit="$commit"
