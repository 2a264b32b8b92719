"""A pytest plugin: skips the tests that redis_py_skips.txt names, each with its reason.

Names are those of the report, `class::test[parameters]`, with the file's name where there is no
class, as in `test_connection::test_loading_external_modules`.
"""

import pytest
from outcome import HERE, read_list, reason_for


def pytest_collection_modifyitems(items):
    skip_list = read_list(HERE / "redis_py_skips.txt")
    for item in items:
        holder = item.cls.__name__ if item.cls else item.module.__name__.rpartition(".")[2]
        for name in (f"{holder}::{item.name}", f"{item.path.stem}::{holder}"):
            reason = reason_for(name, skip_list)
            if reason:
                item.add_marker(pytest.mark.skip(reason=reason))
