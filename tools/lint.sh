#!/bin/sh
# lint.sh BIN: every formatter, linter and rule, a stage each; fails if any of them did.
bin=$1
status=0
stage() {
    "$bin/python" tools/stage.py "$@" || status=1
}
# shellcheck disable=SC2046  # a list of files
stage clang-format "$bin/clang-format" --dry-run -Werror $(git ls-files '*.h' '*.cc')
stage ruff-check "$bin/ruff" check .
stage ruff-format "$bin/ruff" format --check .
stage mypy-package "$bin/mypy" -p fused_embedding -m fused_embedding_cli -m fused_embedding_doctor
stage mypy-tools "$bin/mypy" tools
stage mypy-benchmarks "$bin/mypy" -p benchmarks
stage function-size-cpp "$bin/lizard" -L 60 -a 6 -C 12 -w tf_ops
# Python's docstrings are not counted: the mirrors of tf.nn have long ones.
stage function-size-python "$bin/lizard" -T nloc=60 -C 10 -w -l python \
    python tools benchmarks tests
stage repository-rules "$bin/python" tools/check_repo.py
stage op-reference "$bin/python" tools/gen_op_reference.py --check
exit $status
