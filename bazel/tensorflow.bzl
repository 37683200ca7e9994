"""The installed TensorFlow as a repository: headers, library, and the Python that has it.

What the last action needs is looked for here too: a build must not fail after minutes of compiling.
"""

_BUILD = """
package(default_visibility = ["//visibility:public"])

cc_library(
    name = "headers",
    hdrs = glob(["include/**"]),
    includes = ["include"],
    defines = ["_GLIBCXX_USE_CXX11_ABI=1", "EIGEN_MAX_ALIGN_BYTES=64"],
)

exports_files(["libtensorflow_framework.so.2", "_build_info.py"])

sh_binary(
    name = "python",
    srcs = ["python.sh"],
)
"""

def _output_of(ctx, python, tool, *arguments):
    done = ctx.execute([python, ctx.path(Label("//:tools/" + tool))] + list(arguments))
    if done.return_code:
        fail(done.stderr)
    return done.stdout.strip()

def _tensorflow_wheel_impl(ctx):
    python = ctx.os.environ.get("PYTHON_BIN_PATH") or ctx.which("python3")
    path, version = _output_of(ctx, python, "find_tensorflow.py").split(";")
    setuptools = _output_of(ctx, python, "find_setuptools.py", ctx.path("setuptools"))
    for name in ("include", "libtensorflow_framework.so.2"):
        ctx.symlink(path + "/" + name, name)
    ctx.template(
        "_build_info.py",
        Label("//:tools/_build_info.py.in"),
        {"@TENSORFLOW_VERSION@": version},
    )
    ctx.file(
        "python.sh",
        "#!/bin/sh\nPYTHONPATH='{}' FE_TENSORFLOW_PATH='{}' exec '{}' \"$@\"\n".format(
            setuptools,
            path,
            python,
        ),
    )
    ctx.file("BUILD", _BUILD)

# Looks where tools/find_tensorflow.py says, for the Python in PYTHON_BIN_PATH, else python3.
tensorflow_wheel = repository_rule(
    implementation = _tensorflow_wheel_impl,
    environ = ["FE_TENSORFLOW_PATH", "PATH", "PYTHON_BIN_PATH"],
    configure = True,
    local = True,
)
