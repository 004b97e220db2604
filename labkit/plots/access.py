"""Who touches what: one memory access of one warp, lane by lane."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from labkit.emulator.counters import wavefronts
from labkit.errors import LabkitError

if TYPE_CHECKING:
    import plotly.graph_objects

    from labkit.emulator.trace import Access

ROW = 128  # bytes in a row of the picture: four sectors, or the 32 banks side by side
SECTOR = 32
WORD = 4
_ABSENT = "#f7f8f9"
_UNUSED = "#d2d5d9"
_TOP, _BOTTOM = 104, 66  # pixels above and below the rows
_LANES = ("#8ecae6", "#a8dfc9", "#d5eb9a", "#ffd97d", "#f7a9a0")  # lane 0 to lane 31, all light
_INK = "#3c4043"
_ALARM = "#d93025"


class Traced(Protocol):
    """Anything with traced accesses: a profile or a trace."""

    accesses: Sequence[Access]


def access_map(
    traced: Traced, array: str = "A", line: int | None = None
) -> plotly.graph_objects.Figure:
    """Which lane of a warp touches which address, for one load or store of `array`.

    traced : a profile of the emulator, or a trace.
    line : the source line, where `array` is used on several; its first load is shown by default.

    An array in global memory is drawn by rows of 128 bytes and boxes of 32 (sectors): what is
    fetched but used by no lane is gray. One in shared memory is drawn by its 32 banks.
    Raises LabkitError where there is no such access.
    """
    access = find(traced, array, line)
    return _banks(access) if access.space == "shared" else _sectors(access)


def find(traced: Traced, array: str, line: int | None = None) -> Access:
    """The access that `access_map` draws: the first load of the array, or else its first store."""
    if not traced.accesses and getattr(traced, "origin", "") == "emulated":
        raise LabkitError("The traced warp loads and stores nothing: write the kernel, run its cell, profile again.")
    if not traced.accesses:
        raise LabkitError("There are no addresses to draw here; profile on the emulator, which traces them.")
    named = [a for a in traced.accesses if a.array == array]
    if not named:
        known = dict.fromkeys(a.array for a in traced.accesses if a.array)
        raise LabkitError(f"The traced warp touches no array {array!r}; it touches {', '.join(known)}.")
    here = [a for a in named if line is None or a.line == line]
    if not here:
        lines = sorted({a.line for a in named if a.line})
        raise LabkitError(f"The traced warp does not touch {array} on line {line}, but on {_list(lines)}.")
    return next((a for a in here if a.op == "ld"), here[0])


# ---------------------------------------------------------------------------- global memory


def _sectors(access: Access) -> plotly.graph_objects.Figure:
    per_row = ROW // access.width
    users = _users(access, access.width)
    rows = sorted({a // ROW for a in users})
    place = {row: k for k, row in enumerate(rows)}
    fetched = sorted({a // SECTOR for a in users})
    z = np.full((len(rows), per_row), -2.0)
    text = np.full(z.shape, "", dtype=object)
    hover = np.full(z.shape, "not touched", dtype=object)
    for sector in fetched:
        for slot in range(SECTOR // access.width):
            address = sector * SECTOR + slot * access.width
            at = place[address // ROW], address % ROW // access.width
            lanes = users.get(address, [])
            z[at] = lanes[0] if lanes else -1
            text[at] = _label(lanes)
            if lanes:
                verb = "read" if access.op == "ld" else "written" if access.op == "st" else "updated"
                hover[at] = f"{_element(access, lanes[0])}<br>{verb} by {_lane_words(lanes)}"
            else:
                hover[at] = "fetched with its sector,<br>used by no lane"
    used, whole = len(users) * access.width, len(fetched) * SECTOR
    title = (
        f"one request, {_count(len(fetched), 'sector')}, <b>{used} of {whole} bytes used</b>"
        if access.op == "ld"
        else f"one request, {_count(len(fetched), 'sector')}, <b>{used} of {whole} bytes written</b>"
    )
    labels = [_row_label(access, users, row) for row in rows]
    figure = _grid(access, title, z, text, hover, labels)
    for sector in fetched:
        row = place[sector * SECTOR // ROW]
        left = sector * SECTOR % ROW / access.width - 0.5
        _box(figure, left, row, SECTOR / access.width, _INK, 2)
    step = SECTOR // access.width
    figure.update_xaxes(
        tickvals=[k * step + (step - 1) / 2 for k in range(ROW // SECTOR)],
        ticktext=[f"bytes {k * SECTOR} to {k * SECTOR + SECTOR - 1}" for k in range(ROW // SECTOR)],
    )
    _below(figure, "One row is a 128-byte line of memory, one box a 32-byte sector: memory moves in whole sectors.")
    unused = "fetched, used by no lane" if access.op == "ld" else "in a touched sector, not written"
    _legend(
        figure,
        [(_LANES[0], "a lane's element, with the lane's number"), (_UNUSED, unused), (_ABSENT, "not touched")],
    )
    return figure


def _row_label(access: Access, users: dict[int, list[int]], row: int) -> str:
    inside = sorted(a for a in users if a // ROW == row)
    first, last = (_element(access, users[a][0]) for a in (inside[0], inside[-1]))
    return first if first == last else f"{first} .. {last.removeprefix(access.array or '')}"


def _element(access: Access, lane: int) -> str:
    index = access.indices[lane]
    name = access.array or "?"
    if index is None:
        return f"{name} at byte {access.addresses[lane]}"
    return f"{name}[{', '.join(map(str, index))}]"


# ---------------------------------------------------------------------------- shared memory


def _banks(access: Access) -> plotly.graph_objects.Figure:
    users = _users(access, WORD)
    rows = sorted({a // ROW for a in users})
    place = {row: k for k, row in enumerate(rows)}
    z = np.full((len(rows), 32), -2.0)
    text = np.full(z.shape, "", dtype=object)
    hover = np.full(z.shape, "not touched", dtype=object)
    for address, lanes in users.items():
        at = place[address // ROW], address % ROW // WORD
        z[at] = lanes[0]
        text[at] = _label(lanes)
        hover[at] = f"bank {at[1]}, byte {address} of shared memory<br>{_lane_words(lanes)}"
    offset = np.array([access.addresses], dtype=np.int64)
    kind = access.op if access.op in ("ld", "st") else "atom"
    waves, conflicts = wavefronts(offset, offset >= 0, access.width, kind)
    words = f"one request, {_count(waves, 'wavefront')}, "
    words += f"<b>{_count(conflicts, 'bank conflict')}</b>" if conflicts else "<b>no bank conflict</b>"
    labels = [f"bytes {row * ROW} to {row * ROW + ROW - 1}" for row in rows]
    figure = _grid(access, words, z, text, hover, labels)
    if conflicts:
        load = np.count_nonzero(z >= 0, axis=0)
        for bank in np.flatnonzero((load == load.max()) & (load > 1)):
            _box(figure, bank - 0.5, 0, 1, _ALARM, 2, rows=len(rows))
    figure.update_xaxes(
        tickvals=list(range(32)),
        tickangle=0,
    )
    figure.add_annotation(
        text="bank", x=0, xref="paper", xanchor="right", xshift=-6, y=1, yref="paper", yanchor="bottom",
        showarrow=False, font={"size": 12},
    )  # fmt: skip
    _below(figure, "Columns are the 32 banks: in one wavefront a bank serves one 4-byte word, to any number of lanes.")
    entries = [(_LANES[0], "a word, with the numbers of the lanes that want it")]
    if conflicts:
        entries.append((_ALARM, "the busiest banks: different words, one after the other"))
    _legend(figure, entries)
    return figure


# ---------------------------------------------------------------------------- parts of both


def _users(access: Access, unit: int) -> dict[int, list[int]]:
    """The lanes at each address, in steps of `unit` bytes."""
    users = defaultdict(list)
    for lane, address in enumerate(access.addresses):
        if address >= 0:
            for k in range(max(access.width // unit, 1)):
                users[address // unit * unit + k * unit].append(lane)
    return dict(users)


def _grid(
    access: Access, words: str, z: np.ndarray, text: np.ndarray, hover: np.ndarray, labels: list[str]
) -> plotly.graph_objects.Figure:
    import plotly.graph_objects as go
    from plotly.colors import sample_colorscale

    colors = [_ABSENT, _UNUSED, *sample_colorscale(list(_LANES), np.linspace(0, 1, 32))]
    steps = [(k / 34, color) for k, color in enumerate(colors)]
    scale = [pair for k, (at, color) in enumerate(steps) for pair in ((at, color), ((k + 1) / 34, color))]
    longest = max(map(len, text.flat))  # a column is 23 pixels wide where there are 32, on a page of 900
    size = 12 if z.shape[1] <= 16 else 10 if longest <= 4 else 9
    figure = go.Figure(
        go.Heatmap(
            showlegend=False,
            z=z,
            text=text,
            texttemplate="%{text}",
            textfont={"size": size, "color": "#202124"},
            customdata=hover,
            hovertemplate="%{customdata}<extra></extra>",
            colorscale=scale,
            zmin=-2.5,
            zmax=31.5,
            xgap=2,
            ygap=6,
            showscale=False,
        )
    )
    verb = {"ld": "loads", "st": "stores to"}.get(access.op, "updates")
    where = f" on line {access.line}" if access.line else ""
    figure.update_layout(
        title={
            "text": f"A warp {verb} {access.array}{where}: {words}",
            "subtitle": {
                "text": f"{access.kernel}: one warp, lanes 0 to 31, the first time it gets here",
                "font": {"size": 13},
            },
            "x": 0.01,
            "xanchor": "left",
            "font": {"size": 18},
            "y": 1,
            "yref": "container",
            "yanchor": "top",
            "pad": {"t": 14},
        },
        template="plotly_white",
        showlegend=True,
        height=_TOP + _BOTTOM + 28 * len(labels),
        margin={"l": 20, "r": 20, "t": _TOP, "b": _BOTTOM, "autoexpand": True},
        legend={"orientation": "h", "x": 0, "y": 0, "yref": "container", "yanchor": "bottom"},
    )
    figure.update_xaxes(side="top", showgrid=False, zeroline=False, fixedrange=True, range=[-0.6, z.shape[1] - 0.4])
    figure.update_yaxes(
        tickvals=list(range(len(labels))),
        ticktext=labels,
        range=[len(labels) - 0.4, -0.6],
        showgrid=False,
        zeroline=False,
        fixedrange=True,
        automargin=True,
    )
    return figure


def _box(
    figure: plotly.graph_objects.Figure, left: float, row: int, width: float, color: str, line: int, rows: int = 1
) -> None:
    figure.add_shape(
        type="rect",
        x0=left,
        x1=left + width,
        y0=row - 0.45,
        y1=row + rows - 0.55,
        line={"color": color, "width": line},
    )


def _below(figure: plotly.graph_objects.Figure, text: str) -> None:
    figure.add_annotation(
        text=text, x=0, xref="paper", xanchor="left", y=0, yref="paper", yanchor="top", yshift=-6, showarrow=False,
        font={"size": 12, "color": _INK},
    )  # fmt: skip


def _legend(figure: plotly.graph_objects.Figure, entries: list[tuple[str, str]]) -> None:
    for color, name in entries:
        figure.add_scatter(
            x=[None],
            y=[None],
            mode="markers",
            marker={"symbol": "square", "size": 13, "color": color, "line": {"width": 1, "color": _UNUSED}},
            name=name,
            hoverinfo="skip",
        )


def _label(lanes: list[int]) -> str:
    """Lanes in the room of a cell: `5`, `0,16`, `0-15`, `12 lanes`."""
    if len(lanes) <= 2:
        return ",".join(map(str, lanes))
    if lanes[-1] - lanes[0] == len(lanes) - 1:
        return f"{lanes[0]}-{lanes[-1]}"
    return f"{len(lanes)}x"


def _lane_words(lanes: list[int]) -> str:
    if len(lanes) == 32:
        return "all 32 lanes"
    if len(lanes) > 2 and lanes[-1] - lanes[0] == len(lanes) - 1:
        return f"lanes {lanes[0]} to {lanes[-1]}"
    return f"lane{'s' if len(lanes) > 1 else ''} {_list(lanes)}"


def _list(items: Sequence[Any]) -> str:
    words = [str(item) for item in items]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _count(number: int, noun: str) -> str:
    return f"{'one' if number == 1 else number} {noun}{'' if number == 1 else 's'}"
