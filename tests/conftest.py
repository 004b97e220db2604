from __future__ import annotations

import hypothesis
import pytest

# Times of single examples say nothing on a busy machine of two cores.
hypothesis.settings.register_profile("labkit", deadline=None, print_blob=True)
hypothesis.settings.load_profile("labkit")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu"):
        from labkit.kernels import gpu

        if not gpu.available():
            pytest.skip("there is no NVIDIA GPU here")
