#!/bin/sh
# test_installed.sh VENV JOBS [PYTEST ARGUMENTS]: installs the package into VENV as a user would, and runs
# the tests against what was installed.
set -e
unset PYTHONPATH
venv=$1 jobs=$2
shift 2
tools/system_packages.sh g++
"$venv/bin/pip" install -q --force-reinstall --no-deps .
"$venv/bin/python" -m pytest -q -n "$jobs" --dist=loadfile -o "pythonpath=tests tools" "$@"
