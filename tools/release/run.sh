#!/bin/sh
# run.sh BIN JOBS FOLDER "MINOR ...": makes FOLDER, which could be uploaded: the source distribution, a
# wheel for each MINOR of TensorFlow, the part for SSDs, release notes and hashes. Everything is built
# of the last commit, checked, and built again for the MINORs in AGAIN (default: all). A stage prints
# one line. Exits after the first stage that fails.
set -e
unset PYTHONPATH
umask 022
bin=$PWD/$1 jobs=$2 out=$PWD/$3 minors=$4
work=$PWD/build/release
here=tools/release
python=$bin/python
if [ -n "$(git status --porcelain --untracked-files=no)" ]; then
    echo "a release is made of the last commit, but files differ from it: commit or stash them" >&2
    exit 1
fi
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
# Of releases alone. The second build has a cache of its own each time: it compiles everything again.
export CCACHE_NAMESPACE=release

stage() { "$python" tools/stage.py "$@"; }
# each "MINOR ..." NAME COMMAND...: a stage for each, JOBS at a time; {} stands for the MINOR.
each() {
    of=$1 name=$2
    shift 2
    # shellcheck disable=SC2086  # a list of words
    printf '%s\n' $of | xargs -P "$jobs" -I{} "$python" tools/stage.py "$name-{}" "$@"
}

rm -rf "$out" "$work/sdist" "$work/first" "$work/second"
mkdir -p "$out" "$work"
stage release-sdist $here/sdist.sh "$bin" "$work/sdist" "$out"
sdist=$(echo "$out"/fused_embedding-*.tar.gz)
stage release-ssd $here/ssd.sh "$bin" "$sdist" "$work/first/ssd" "$out"
each "$minors" tensorflow $here/tensorflow.sh {} "$work"
each "$minors" wheel $here/wheel.sh "$bin" {} "$sdist" "$work" first "$out"
each "$minors" try $here/try.sh {} "$work" "$out"
stage try-source $here/source.sh "$bin" "${minors##* }" "$sdist" "$work"
stage release-refusals $here/refusals.sh "$bin" "$out"
stage release-check "$python" $here/check.py "$out" "$minors"
again=${AGAIN-$minors}
if [ -n "$again" ]; then
    CCACHE_NAMESPACE=release-$(date +%s)
    stage again-ssd $here/again.sh "$bin" ssd "$sdist" "$work" "$out"
    each "$again" again $here/again.sh "$bin" {} "$sdist" "$work" "$out"
fi
