"""The what-if widget: sliders for a block's needs, and beside them how many blocks and warps fit."""

from __future__ import annotations

from typing import Any

from labkit.errors import LabkitError
from labkit.models.devices import DEVICES, find
from labkit.models.occupancy import occupancy


class WhatIf:
    """Occupancy of a block of `threads` threads; in a notebook with sliders, elsewhere as text.

    threads: per block.  registers: per thread.  shared: bytes per block.  device: a name of the table of devices.
    """

    def __init__(self, threads: int = 256, registers: int = 32, shared: int = 0, device: str = "NVIDIA H200") -> None:
        self.threads, self.registers, self.shared = threads, registers, shared
        self.device = find(device).name

    @property
    def text(self) -> str:
        """What fits, what runs out first, and what every other resource would allow."""
        try:
            fits = occupancy(self.threads, self.registers, self.shared, find(self.device).arch)
        except LabkitError as error:
            return str(error)
        allowed = ", ".join(f"{name} {n}" for name, n in fits.limits.items() if n is not None)
        return (
            f"{self.threads} threads, {self.registers} registers per thread and {self.shared:,} bytes of shared memory "
            f"per block on the {self.device}: {fits!r}. Blocks that each would allow alone: {allowed}."
        )

    __repr__ = text.fget

    def _ipython_display_(self) -> None:
        from IPython.display import display

        try:
            display(self.widget())
        except ImportError:  # no ipywidgets: the text says the same
            print(self.text)

    def widget(self) -> Any:
        """Sliders and the text that follows them; ImportError where ipywidgets is not installed."""
        import ipywidgets

        wide = {"style": {"description_width": "170px"}, "layout": {"width": "520px"}, "continuous_update": True}
        controls = {
            "threads": ipywidgets.IntSlider(self.threads, 32, 1024, 32, description="threads per block", **wide),
            "registers": ipywidgets.IntSlider(self.registers, 16, 255, 1, description="registers per thread", **wide),
            "shared": ipywidgets.IntSlider(self.shared, 0, 232448, 512, description="shared bytes per block", **wide),
            "device": ipywidgets.Dropdown(options=list(DEVICES), value=self.device, description="device"),
        }
        said = ipywidgets.HTML()

        def changed(_: Any = None) -> None:
            for name, control in controls.items():
                setattr(self, name, control.value)
            said.value = self.text

        for control in controls.values():
            control.observe(changed, names="value")
        changed()
        return ipywidgets.VBox([*controls.values(), said])


def occupancy_widget(threads: int = 256, registers: int = 32, shared: int = 0, device: str = "NVIDIA H200") -> WhatIf:
    """Move threads, registers, shared memory and device, and see how many warps fit and why not more."""
    return WhatIf(threads, registers, shared, device)
