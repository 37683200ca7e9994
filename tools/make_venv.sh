#!/bin/sh
# make_venv.sh VENV REQUIREMENTS NEWEST_MINOR: makes VENV with the packages of REQUIREMENTS, from
# the first of PYTHON, python3, python3.13 ... that is a Python from 3.10 to 3.NEWEST_MINOR.
# Exits with 77 if there is none.
set -e
venv=$1 requirements=$2 newest=$3
fits() {
    "$1" -c "import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, $newest))" 2>/dev/null
}
for python in ${PYTHON:-python3} python3.13 python3.12 python3.11 python3.10 none; do
    fits "$python" && break
done
if [ "$python" = none ]; then
    echo "no Python from 3.10 to 3.$newest, which $requirements needs; install one or set PYTHON"
    exit 77
fi
"$python" -c 'import ensurepip' 2>/dev/null || tools/system_packages.sh python3-venv
rm -rf "$venv"
"$python" -m venv "$venv"
# Of the modules only those that are imported are compiled, when they are: a small part. What each
# program imports is compiled here, for users who have Python write no bytecode.
"$venv/bin/pip" install -q --no-compile -r "$requirements"
env -u PYTHONDONTWRITEBYTECODE "$venv/bin/python" -c 'import importlib.util as u
if u.find_spec("tensorflow"): import tensorflow as tf; tf.keras'
touch "$venv/.done"
