"""Packs the wheel with setup.py, which holds the metadata, around a library that Bazel built."""

_COMMAND = """
set -e
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
python=$PWD/{python}
out=$PWD/{out}
cp -L --parents {sources} "$tree"
mkdir "$tree/prebuilt"
cp -L {prebuilt} "$tree/prebuilt"
cd "$tree"
FE_PREBUILT_DIR=$tree/prebuilt "$python" setup.py -q bdist_wheel --dist-dir "$out" >log 2>&1 ||
    (cat log; exit 1)
"""

def _python_wheel_impl(ctx):
    # A folder, because the name of the wheel holds TensorFlow's version and the platform.
    out = ctx.actions.declare_directory(ctx.label.name)
    ctx.actions.run_shell(
        inputs = ctx.files.srcs + ctx.files.prebuilt,
        tools = [ctx.executable.python],
        outputs = [out],
        command = _COMMAND.format(
            python = ctx.executable.python.path,
            out = out.path,
            sources = " ".join([f.path for f in ctx.files.srcs]),
            prebuilt = " ".join([f.path for f in ctx.files.prebuilt]),
        ),
        mnemonic = "PythonWheel",
        use_default_shell_env = True,
    )
    return [DefaultInfo(files = depset([out]))]

python_wheel = rule(
    implementation = _python_wheel_impl,
    attrs = {
        "srcs": attr.label_list(allow_files = True, doc = "setup.py and what it packs."),
        "prebuilt": attr.label_list(allow_files = True, doc = "_ops.so and _build_info.py."),
        "python": attr.label(executable = True, cfg = "exec", doc = "Finds setuptools >= 77."),
    },
)
