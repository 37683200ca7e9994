"""Stands in for the repository that Debian's Bazel would download."""

def debian_rules_cc():
    """Defines rules_cc for Debian's bazel-bootstrap, the Bazel that gives no version.

    Debian's own package of rules_cc is written for a later Bazel than its 4.2.3. Released
    versions bring a rules_cc that fits them, so they are left alone.
    """
    if not native.bazel_version:
        native.local_repository(name = "rules_cc", path = "bazel/rules_cc")
