#!/bin/sh
# bazel_wheel.sh VENV: builds dist/bazel/*.whl with Debian's Bazel for the TensorFlow in VENV.
# Then checks that it is pip's wheel (dist/*.whl), and that it runs the example of the README in an
# empty environment, where it brings TensorFlow along as its extra [cpu].
set -e
unset PYTHONPATH
tools/system_packages.sh g++ bazel-bootstrap bazel-rules-java bazel-rules-proto bazel-platforms
PYTHON_BIN_PATH=$PWD/$1/bin/python bazel build --config=debian //:wheel
bazel shutdown
rm -rf dist/bazel
mkdir -p dist/bazel
install -m 644 bazel-bin/wheel/*.whl dist/bazel

"$1/bin/python" tools/compare_wheels.py dist/*.whl dist/bazel/*.whl
empty=$(mktemp -d)
trap 'rm -rf "$empty"' EXIT
"$1/bin/python" -m venv "$empty/venv"
"$empty/venv/bin/pip" install -q "$(echo dist/bazel/*.whl)[cpu]"
"$1/bin/python" tools/readme_example.py >"$empty/example.py"
(cd "$empty" && venv/bin/python example.py)
