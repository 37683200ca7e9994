#!/bin/sh
# test_oldest.sh JOBS [PYTEST ARGUMENTS]: installs the package as a user would into an environment with
# the oldest supported TensorFlow, and runs the tests against what was installed.
# Exits with 77 where there is no Python for that TensorFlow.
set -e
unset PYTHONPATH
jobs=$1
shift
tools/system_packages.sh g++
if [ ! -e .venv-oldest/.done ] || [ tools/requirements_oldest.txt -nt .venv-oldest/.done ]; then
    tools/make_venv.sh .venv-oldest tools/requirements_oldest.txt 11
fi
.venv-oldest/bin/pip install -q --force-reinstall --no-deps .
.venv-oldest/bin/python -m pytest -q -n "$jobs" --dist=loadfile \
    -o "pythonpath=tests tools" "$@"
