from __future__ import annotations

import hypothesis
import pytest

# Times of single examples say nothing on a busy machine of two cores.
hypothesis.settings.register_profile("labkit", deadline=None, print_blob=True)
hypothesis.settings.load_profile("labkit")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if any(item.get_closest_marker("gpu") for item in items):
        from labkit.kernels import gpu

        if not gpu.available():
            for item in items:
                if item.get_closest_marker("gpu"):
                    item.add_marker(pytest.mark.skip(reason="there is no NVIDIA GPU here"))
