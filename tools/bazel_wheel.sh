#!/bin/sh
# bazel_wheel.sh PYTHON [OPTIONS]: builds dist/bazel/*.whl with Debian's Bazel, which gets OPTIONS,
# from an environment of its own that has TensorFlow and nothing else: it must not need more, such
# as a newer setuptools than that environment has. Then checks that it is pip's wheel (dist/*.whl),
# that its extra [cpu] is that TensorFlow, and that it runs the example of the README there.
set -e
python=$1
shift
unset PYTHONPATH
tools/system_packages.sh g++ bazel-bootstrap bazel-rules-java bazel-rules-proto bazel-platforms
tensorflow=$("$python" tools/find_tensorflow.py)
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
"$python" -m venv "$fresh/venv"
"$fresh/venv/bin/pip" install -q --no-compile "tensorflow-cpu==${tensorflow##*;}"
# TensorFlow asks for any setuptools, so from Python 3.12 on pip has taken the newest one.
packs_wheels="import find_setuptools as f, sys; sys.exit(not f.packs_wheels(sys.argv[1]))"
if PYTHONPATH=tools "$python" -c "$packs_wheels" "$fresh/venv/bin/python"; then
    "$fresh/venv/bin/pip" uninstall -q -y setuptools
fi

# In one process, so that its CPU seconds are those of this stage.
PYTHON_BIN_PATH=$fresh/venv/bin/python bazel --batch build --config=debian "$@" //:wheel
rm -rf dist/bazel
mkdir -p dist/bazel
install -m 644 bazel-bin/wheel/*.whl dist/bazel
"$python" tools/compare_wheels.py dist/*.whl dist/bazel/*.whl

wheel=$(echo dist/bazel/*.whl)
"$fresh/venv/bin/pip" install --no-compile "$wheel[cpu]" >"$fresh/installed"
grep -q "already satisfied: tensorflow-cpu" "$fresh/installed"
"$python" tools/readme_example.py >"$fresh/example.py"
(cd "$fresh" && venv/bin/python example.py)
