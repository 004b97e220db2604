"""Occupancy curves: how many warps fit as a kernel takes more registers, shared memory, or threads per block."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labkit.errors import LabkitError
from labkit.models.devices import find, limits
from labkit.models.occupancy import WARP
from labkit.models.occupancy import occupancy as fit

if TYPE_CHECKING:
    import plotly.graph_objects as go

_LINE, _POINT = "#1f77b4", "#d9480f"


def curves(
    threads: int, registers: int, shared: int, arch: str
) -> dict[str, tuple[list[int], list[int | None], list[str]]]:
    """For each resource: how much of it, how many warps then fit (None where no block does), and what runs out."""
    has = limits(arch)
    asked = {
        "registers per thread": range(16, has.registers_per_thread + 1),
        "bytes of shared memory per block": range(0, has.shared_per_block + 1, 512),
        "threads per block": range(WARP, has.threads_per_block + 1, WARP),
    }
    found = {}
    for name, values in asked.items():
        warps, limiters = [], []
        for value in values:
            changed = {
                "registers per thread": (threads, value, shared),
                "bytes of shared memory per block": (threads, registers, value),
                "threads per block": (value, registers, shared),
            }[name]
            try:
                fits = fit(*changed, arch)
            except LabkitError:
                warps.append(None)
                limiters.append("no block fits")
                continue
            warps.append(fits.warps)
            limiters.append(fits.limiter)
        found[name] = list(values), warps, limiters
    return found


def occupancy(threads: int, registers: int, shared: int = 0, device: str = "NVIDIA H200") -> go.Figure:
    """Warps that fit on a multiprocessor against registers, shared memory and threads; the kernel's own place marked.

    threads: per block.  registers: per thread.  shared: bytes per block.  device: a name of the table of devices.
    Raises LabkitError where no such block runs at all.
    """
    from plotly.subplots import make_subplots

    known = find(device)
    here = fit(threads, registers, shared, known.arch)
    found = curves(threads, registers, shared, known.arch)
    figure = make_subplots(1, len(found), shared_yaxes=True, horizontal_spacing=0.03)
    for column, ((name, (values, warps, limiters)), own) in enumerate(
        zip(found.items(), (registers, shared, threads), strict=True), 1
    ):
        figure.add_scatter(
            x=values, y=warps, mode="lines", line={"color": _LINE, "shape": "hv"}, customdata=limiters,
            hovertemplate=f"%{{x}} {name}: %{{y}} warps, limited by %{{customdata}}<extra></extra>", showlegend=False,
            row=1, col=column,
        )  # fmt: skip
        figure.add_scatter(
            x=[own], y=[here.warps], mode="markers", marker={"color": _POINT, "size": 11}, showlegend=False,
            hovertemplate=f"this kernel: {here!r}<extra></extra>", row=1, col=column,
        )  # fmt: skip
        figure.update_xaxes(title_text=name, row=1, col=column)
    most = known.limits.warps
    figure.update_yaxes(range=[0, most * 1.06], dtick=max(8, most // 8), row=1)
    figure.update_yaxes(title_text="warps per multiprocessor", row=1, col=1)
    figure.update_layout(
        template="plotly_white", height=380, margin={"t": 80, "b": 60},
        title={
            "text": f"{here.warps} of {most} warps on the {known.name}: limited by {here.limiter}",
            "x": 0.01, "xanchor": "left",
            "subtitle": {"text": f"{threads} threads per block, {registers} registers per thread, {shared:,} bytes of "
                         "shared memory per block: the dot. Each curve changes one of them."},
        },
    )  # fmt: skip
    return figure
