#!/bin/sh
# refusals.sh BIN OUT: checks what is refused: two distributions in one environment, when the package is
# imported; and a build of the source distribution where there is no TensorFlow.
set -e
bin=$1 out=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/both"
for wheel in $(find "$out" -name 'fused_embedding_tf2*.whl' | sort | tail -2); do
    "$bin/python" -m zipfile -e "$wheel" "$folder/both"  # as pip does: one over the other
done
if [ "$(find "$folder/both" -name 'fused_embedding_tf*.dist-info' | wc -l)" -lt 2 ]; then
    echo "two distributions: not tried with one wheel"
elif PYTHONPATH=$folder/both "$bin/python" -c 'import fused_embedding' 2>"$folder/refusal"; then
    echo "two distributions were imported together" >&2
    exit 1
else
    tail -1 "$folder/refusal"
    grep -q 'ImportError: .*pip uninstall -y fused-embedding-tf' "$folder/refusal"
fi

if PATH=$bin:$PATH "$bin/pip" install -q --no-index --no-deps --no-build-isolation \
    --target "$folder/none" "$out"/fused_embedding-*.tar.gz >"$folder/none.log" 2>&1; then
    echo "the source distribution was built without TensorFlow" >&2
    exit 1
fi
grep 'fused_embedding cannot be built: no TensorFlow' "$folder/none.log"
