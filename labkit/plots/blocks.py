"""What a block does: how often it reads what, its warps against the barriers, its lanes step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from labkit.emulator.steps import Array, Steps, is_barrier, schedule
from labkit.errors import LabkitError

if TYPE_CHECKING:
    import plotly.graph_objects as go

LINES = (
    "#4c78a8", "#f58518", "#54a24b", "#b279a2", "#72b7b2", "#eeca3b", "#9d755d", "#ff9da6", "#86bcb6", "#d67195",
)  # fmt: skip
OTHER = "#bab0ac"
ABSENT = "#eceef0"
INK = "#202124"
ALARM = "#d93025"
ROW = 32  # elements of a vector in one row
CELLS = 128  # rows and columns of a heat map at most; larger arrays are drawn in groups of elements
SHOWN = 4_000  # stretches of a timeline, and runs of a divergence picture, at most
FRAMES = 64


def reuse(recorded: Any, array: str = "A", most: int | None = None) -> go.Figure:
    """How often one block reads each element of `array`, global or shared, as a heat map.

    recorded : a profile of the emulator, or its recorded steps. most : the count that is drawn darkest, for pictures
    to compare; the largest by default. A read is one lane's: 32 lanes that read one element
    with one instruction read it 32 times. Raises LabkitError where nothing was recorded, and for an unknown array.
    """
    import plotly.graph_objects as go

    steps = recorded_steps(recorded)
    there = steps.array(array)
    counts = steps.grid_of(array, "ld")
    if not counts.any():
        raise LabkitError(f"Block {steps.block} never reads {array}; it only writes it.")
    part, x, y, names, group = _window(there, _flat(counts), _flat(counts) > 0)
    read = counts[counts > 0]
    times = _times(int(read[0])) if (read == read[0]).all() else f"{read.mean():,.3g} times on average"
    most = most or int(counts.max())
    ticks = sorted({most * k // 4 for k in range(1, 5)} | {1})
    figure = go.Figure(
        go.Heatmap(
            z=np.where(part > 0, part, np.nan), x=x, y=y, xgap=_gap(part, 1), ygap=_gap(part, 0), zmin=0, zmax=most,
            colorscale=[(0, "#eaf2fa"), (0.5, "#4292c6"), (1, "#08306b")],
            colorbar={"title": {"text": "reads"}, "thickness": 14, "tickvals": [k for k in ticks if k],
                      "lenmode": "pixels", "len": 190, "y": 1, "yanchor": "top"},
            hovertemplate=f"{array}[{names}]: read %{{z:,}} times<extra></extra>",
            texttemplate="%{z:d}" if max(part.shape) <= 32 else None,
        )
    )  # fmt: skip
    heading = f"One block reads {len(read):,} elements of {array}, <b>{times} each</b>"
    _finish(figure, steps, heading, f"{read.sum():,} reads by {_size(steps)}; white: not read by this block{group}")
    _as_matrix(figure, there, part)
    return figure


def timeline(recorded: Any, until: int | None = None) -> go.Figure:
    """The warps of one block side by side: which source line each executes, and where it waits at a barrier.

    recorded : a profile of the emulator, or its recorded steps; until : where to stop, in instructions.
    Each warp executes one PTX instruction per unit of time. A real multiprocessor takes turns between its warps, and
    memory takes its time too; what is true of both is who has how much to do before each barrier.
    Raises LabkitError where nothing was recorded.
    """
    import plotly.graph_objects as go

    steps = recorded_steps(recorded)
    stretches, opens = schedule(steps)
    end = max(s.stop for s in stretches)
    shown = min(until or end, end)
    if len([s for s in stretches if s.start < shown]) > SHOWN:
        shown = sorted(s.start for s in stretches)[SHOWN]
    stretches = [s for s in stretches if s.start < shown]
    opens = [at for at in opens if at <= shown]
    colors = _line_colors(steps, stretches)
    figure = go.Figure()
    for line, color in [*colors.items(), (0, OTHER)]:
        mine = [s for s in stretches if s.line is not None and (s.line if s.line in colors else 0) == line]
        if mine:
            label = f"{line}: {_short(steps.text(line))}" if line else "other lines"
            _bars(figure, mine, color, label, [_doing(s) for s in mine], shown)
    waits = [s for s in stretches if s.line is None]
    if waits:
        _bars(figure, waits, "rgba(217,48,37,0.12)", "waits at a barrier", [
            f"warp {s.warp} waits for {s.stop - s.start} instructions" for s in waits
        ], shown, {"shape": "/", "fgcolor": ALARM, "bgcolor": "white", "size": 6, "solidity": 0.25})  # fmt: skip
    for at in opens:
        figure.add_vline(x=at, line={"color": INK, "width": 1.5})
    if opens:
        figure.add_scatter(x=[None], y=[None], mode="lines", line={"color": INK, "width": 2}, name="barrier")
    lost = sum(min(s.stop, shown) - s.start for s in waits)
    part = lost / (steps.warps * shown)
    barriers = f"{len(opens)} barrier{'' if len(opens) == 1 else 's'}" if opens else "no barrier"
    wait = f"<b>{max(part, 0.01):.0%} of the time spent waiting</b>" if lost else "<b>nobody waits</b>"
    cut = f"; the first {shown:,} of {end:,} instructions" if shown < end else ""
    _finish(
        figure, steps, f"{_count(steps.warps, 'warp')}, {barriers}, {wait}",
        f"each warp executes one PTX instruction per unit of time{cut}",
    )  # fmt: skip
    figure.update_layout(
        barmode="overlay", bargap=0.18, height=max(330, 190 + 26 * steps.warps + 20 * len(figure.data)),
        legend={"orientation": "v", "x": 0, "xanchor": "left", "y": -52 / (40 + 26 * steps.warps), "yanchor": "top",
                "font": {"family": "monospace", "size": 12}},
        margin={"b": 60 + 20 * len(figure.data)},
    )  # fmt: skip
    title = {"text": "instructions executed by each warp, or waited for", "standoff": 6}
    figure.update_xaxes(title=title, range=[0, shown])
    figure.update_yaxes(
        tickvals=list(range(steps.warps)), ticktext=[f"warp {w}" for w in range(steps.warps)],
        range=[steps.warps - 0.5, -0.5], showgrid=False,
    )  # fmt: skip
    return figure


def divergence(recorded: Any, warp: int = 0) -> go.Figure:
    """The 32 lanes of one warp, step by step: in the color of the source line where a lane is active, gray where not.

    recorded : a profile of the emulator, or its recorded steps. Raises LabkitError where nothing was recorded, and
    where there is no such warp.
    """
    import plotly.graph_objects as go

    steps = recorded_steps(recorded)
    mine = steps.of_warp(warp)
    if not len(mine):
        raise LabkitError(f"Warp {warp} executes nothing in what was recorded.")
    bits = steps.lanes[mine, warp]
    lines = np.array([steps.instruction(k).line or 0 for k in mine])
    starts = np.flatnonzero(np.r_[True, (bits[1:] != bits[:-1]) | (lines[1:] != lines[:-1])])[: SHOWN]
    ends = np.r_[starts[1:], len(mine)] if len(starts) < SHOWN else np.r_[starts[1:], starts[-1] + 1]
    bits_of, lines_of = bits[starts], lines[starts]
    shown = int(ends[-1])
    weight = {int(n): int((ends - starts)[lines_of == n].sum()) for n in np.unique(lines_of)}
    busiest = sorted(sorted(weight, key=lambda n: -weight[n])[: len(LINES)])
    number = {line: k + 1 for k, line in enumerate(busiest)}
    active = (bits_of[None, :] >> np.arange(32, dtype=np.uint32)[:, None]) & 1
    z = active * np.array([number.get(int(n), len(LINES) + 1) for n in lines_of])
    palette = [ABSENT, *LINES, OTHER]
    scale = [pair for k, color in enumerate(palette) for pair in ((k / 12, color), ((k + 1) / 12, color))]
    hover = np.array([f"line {n}: {_short(steps.text(int(n)))}" for n in lines_of])
    figure = go.Figure(
        go.Heatmap(
            z=z, x=np.r_[starts, shown], y=np.arange(33) - 0.5, colorscale=scale, zmin=-0.5, zmax=11.5, showscale=False,
            ygap=1, customdata=np.broadcast_to(hover, z.shape),
            hovertemplate="lane %{y}<br>%{customdata}<extra></extra>",
        )
    )  # fmt: skip
    for line in busiest:
        _key(figure, LINES[number[line] - 1], f"{line}: {_short(steps.text(line))}" if line else "no source line")
    if len(weight) > len(busiest):
        _key(figure, OTHER, "other lines")
    _key(figure, ABSENT, "lane not active")
    used = sum(int(b).bit_count() for b in bits) / (32 * len(bits))
    full = int((bits == 0xFFFFFFFF).sum())
    words = "<b>all 32 lanes always active</b>" if used == 1 else f"<b>{used:.0%} of its lanes active on average</b>"
    cut = f"; the first {shown:,} are drawn" if shown < len(mine) else ""
    _finish(
        figure, steps, f"Warp {warp}: {words}",
        f"{full:,} of {len(mine):,} instructions run in all 32 lanes{cut}",
    )  # fmt: skip
    entries = len(figure.data) - 1
    figure.update_layout(
        height=440 + 20 * entries, margin={"b": 60 + 20 * entries},
        legend={"orientation": "v", "x": 0, "xanchor": "left", "y": -0.2, "yanchor": "top",
                "font": {"family": "monospace", "size": 12}},
    )  # fmt: skip
    title = {"text": "PTX instructions of the warp, one after the other", "standoff": 6}
    figure.update_xaxes(title=title, range=[0, shown])
    figure.update_yaxes(title="lane", tickvals=[0, 8, 16, 24, 31], range=[31.5, -0.5], showgrid=False, zeroline=False)
    return figure


def tile_walk(recorded: Any, array: str = "A") -> go.Figure:
    """Which elements of `array` one block reads or writes, phase by phase between its barriers, animated.

    recorded : a profile of the emulator, or its recorded steps. Phases that do not touch the array are left out.
    Raises LabkitError where nothing was recorded, and for an unknown array.
    """
    import plotly.graph_objects as go

    steps = recorded_steps(recorded)
    there = steps.array(array)
    phases = sorted({k for op in ("ld", "st") for k in steps.touched(array, op)})
    left_out = f"; the first {FRAMES} of {len(phases)} phases" if len(phases) > FRAMES else ""
    phases = phases[:FRAMES]
    before = np.zeros(_flat(np.empty(there.shape)).shape, bool)
    states, words = [], []
    for phase in phases:
        read, written = (_flat(steps.grid_of(array, op, phase)) > 0 for op in ("ld", "st"))
        states.append(np.where(read & written, 4, np.where(written, 3, np.where(read, 2, np.where(before, 1, 0)))))
        before |= read | written
        verbs = [f"{verb} {n:,}" for verb, n in (("reads", read.sum()), ("writes", written.sum())) if n]
        words.append(f"Between barriers {phase} and {phase + 1}" if phase else "Before the first barrier")
        if len(phases) == 1 and not phase and max(steps.phases) == 0:
            words[-1] = "From its start to its end"
        words[-1] += f", one block <b>{' and '.join(verbs)}</b> elements of {array}"
    every = np.stack(states)
    parts = [_window(there, state, every.any(axis=0)) for state in states]
    part, x, y, names, group = parts[0]
    colors = (ABSENT, "#c6dbef", "#2171b5", "#e6550d", "#756bb1")
    scale = [pair for k, color in enumerate(colors) for pair in ((k / 5, color), ((k + 1) / 5, color))]

    def heat(k: int) -> go.Heatmap:
        return go.Heatmap(
            z=parts[k][0], x=x, y=y, zmin=-0.5, zmax=4.5, colorscale=scale, showscale=False, xgap=_gap(part, 1),
            ygap=_gap(part, 0), hovertemplate=f"{array}[{names}]<extra></extra>", showlegend=False,
        )  # fmt: skip

    figure = go.Figure(heat(0))
    keys = ("not touched", "touched earlier", "read now", "written now", "read and written now")
    for state in range(1, 5):
        if (every == state).any():
            _key(figure, colors[state], keys[state])
    under = f"{steps.kernel}, block {steps.block}{left_out}{group}"
    _finish(figure, steps, words[0], under.removeprefix(f"{steps.kernel}, block {steps.block}").removeprefix("; "))
    _as_matrix(figure, there, part)
    if len(phases) > 1:
        figure.frames = [
            go.Frame(data=[heat(k)], name=str(k), layout={"title": {"text": words[k]}}, traces=[0])
            for k in range(len(phases))
        ]
        figure.update_layout(
            height=figure.layout.height + 80, margin={"t": 112, "b": 130},
            legend={"y": 1.01, "yanchor": "bottom"},
            updatemenus=[{
                "type": "buttons", "direction": "left", "x": 0, "xanchor": "left", "y": 0, "yanchor": "top",
                "pad": {"t": 68}, "showactive": False,
                "buttons": [
                    {"label": "▶ play", "method": "animate", "args": [None, {
                        "frame": {"duration": 700, "redraw": True}, "transition": {"duration": 0},
                        "fromcurrent": True}]},
                    {"label": "pause", "method": "animate", "args": [[None], {"mode": "immediate"}]},
                ],
            }],
            sliders=[{
                "x": 0.24, "len": 0.76, "y": 0, "yanchor": "top", "pad": {"t": 58},
                "currentvalue": {"visible": False},
                "steps": [{"label": str(p), "method": "animate", "args": [[str(k)], {
                    "mode": "immediate", "frame": {"duration": 0, "redraw": True}}]} for k, p in enumerate(phases)],
            }],
        )  # fmt: skip
    return figure


# ---------------------------------------------------------------------------- parts of all


def recorded_steps(recorded: Any) -> Steps:
    """The steps of a profile, or what is passed if it is steps; LabkitError where there are none."""
    steps = recorded if isinstance(recorded, Steps) else getattr(recorded, "steps", None)
    if not isinstance(steps, Steps):
        raise LabkitError("No steps were recorded here; profile on the emulator, which records those of one block.")
    if not steps.pcs:
        raise LabkitError(f"Nothing was recorded: no launch has a block {steps.block}.")
    return steps


def _flat(counts: np.ndarray) -> np.ndarray:
    """As a matrix: a vector in rows of 32, and the leading dimensions below each other for more than two."""
    if counts.ndim > 1:
        return counts.reshape(-1, counts.shape[-1])
    row = min(ROW, max(len(counts), 1))
    return np.pad(counts, (0, -len(counts) % row)).reshape(-1, row)


def _window(array: Array, values: np.ndarray, touched: np.ndarray) -> tuple:
    """The part of a matrix to draw, its x and y, the pattern of an element's name, and a note where it is not all.

    A large array is cut to the elements that are touched, and drawn by groups where these are too many.
    """
    rows, columns = slice(0, values.shape[0]), slice(0, values.shape[1])
    note = ""
    if max(values.shape) > CELLS:
        down, across = np.flatnonzero(touched.any(axis=1)), np.flatnonzero(touched.any(axis=0))
        rows, columns = slice(down[0], down[-1] + 1), slice(across[0], across[-1] + 1)
        whole = ", ".join(map(str, array.shape))
        note = f"; a part of {array.name}[{whole}]"
    part = values[rows, columns]
    x, y = np.arange(columns.start, columns.stop), np.arange(rows.start, rows.stop)
    by = tuple(-(-n // CELLS) for n in part.shape)
    if max(by) > 1:
        padded = np.pad(part, [(0, -n % b) for n, b in zip(part.shape, by, strict=True)])
        part = padded.reshape(padded.shape[0] // by[0], by[0], -1, by[1]).max(axis=(1, 3))
        x, y = x[:: by[1]], y[:: by[0]]
        note += f"; a cell is the most of {by[0]} x {by[1]} elements"
    names = "%{y}, %{x}"
    if len(array.shape) == 1:
        y, names = y * ROW, "%{y} + %{x}" if len(part) > 1 else "%{x}"
    return part, x, y, names, note


def _gap(part: np.ndarray, axis: int) -> float:
    return 1 if part.shape[axis] <= 40 else 0


def _as_matrix(figure: go.Figure, array: Array, part: np.ndarray) -> None:
    """Rows downwards, columns to the right, square cells where there is room for them."""
    rows, columns = part.shape
    cell = max(2.0, min(26.0, 440 / rows, 700 / columns))
    figure.update_layout(height=int(min(max(cell * rows, 40), 520)) + 190, margin={"b": 70})
    vector = len(array.shape) == 1
    last = ("index, from the row's first" if rows > 1 else "index") if vector else f"column of {array.name}"
    figure.update_xaxes(title=last, showgrid=False, zeroline=False, side="bottom", constrain="domain")
    figure.update_yaxes(
        title="" if rows == 1 else "first index of the row" if vector else f"row of {array.name}",
        autorange="reversed", showgrid=False, zeroline=False, showticklabels=rows > 1, constrain="domain",
    )  # fmt: skip
    if vector and rows > 1:
        figure.update_yaxes(tickvals=list(range(0, rows * ROW, ROW * max(1, rows // 16))))
    if rows > 1 and not vector and max(rows, columns) <= 12 * min(rows, columns):
        figure.update_yaxes(scaleanchor="x", scaleratio=1)
    figure.update_layout(plot_bgcolor="white")
    for axis in (figure.update_xaxes, figure.update_yaxes):
        axis(showline=True, linecolor="#9aa0a6", mirror=True)


def _finish(figure: go.Figure, steps: Steps, title: str, subtitle: str) -> None:
    under = "; ".join(filter(None, [f"{steps.kernel}, block {steps.block}", subtitle, *steps.notes]))
    figure.update_layout(
        title={
            "text": title, "subtitle": {"text": under, "font": {"size": 13}}, "x": 0.01, "xanchor": "left",
            "font": {"size": 18}, "y": 1, "yref": "container", "yanchor": "top", "pad": {"t": 14},
        },
        template="plotly_white", margin={"t": 84, "l": 70, "r": 20},
        legend={"orientation": "h", "x": 0, "y": -0.16, "yanchor": "top"}, showlegend=True,
    )  # fmt: skip


def _line_colors(steps: Steps, stretches: list) -> dict[int, str]:
    """Colors of the source lines that take most of the time, in the order of the source; barriers have their own."""
    weight: dict[int, int] = {}
    barriers = {i.line for i in steps.program.instructions if is_barrier(i)}
    barriers -= {i.line for i in steps.program.instructions if i.op in ("ld", "st", "atom", "red", "fma")}
    for s in stretches:
        if s.line and s.line not in barriers:
            weight[s.line] = weight.get(s.line, 0) + s.stop - s.start
    least = sum(weight.values()) / 50  # thinner ones could not be told apart
    busiest = sorted(n for n in sorted(weight, key=lambda n: -weight[n])[: len(LINES)] if weight[n] >= least)
    return dict(zip(busiest, LINES, strict=False))


def _bars(
    figure: go.Figure, stretches: list, color: str, name: str, hover: list[str], end: int, pattern: dict | None = None
) -> None:
    figure.add_bar(
        orientation="h", base=[s.start for s in stretches], x=[min(s.stop, end) - s.start for s in stretches],
        y=[s.warp for s in stretches], name=name, customdata=hover, hovertemplate="%{customdata}<extra></extra>",
        marker={"color": color, "line": {"width": 0}, **({"pattern": pattern} if pattern else {})},
    )  # fmt: skip


def _doing(stretch: Any) -> str:
    lanes = "" if stretch.lanes == 32 else f"<br>{stretch.lanes} of 32 lanes"
    times = stretch.stop - stretch.start
    return f"warp {stretch.warp}, line {stretch.line}, {_count(times, 'instruction')}{lanes}"


def _key(figure: go.Figure, color: str, name: str) -> None:
    figure.add_scatter(
        x=[None], y=[None], mode="markers", name=name, hoverinfo="skip",
        marker={"symbol": "square", "size": 13, "color": color, "line": {"width": 1, "color": "#d2d5d9"}},
    )  # fmt: skip


def _short(text: str, most: int = 78) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."


def _times(number: int) -> str:
    return {1: "once", 2: "twice"}.get(number, f"{number:,} times")


def _size(steps: Steps) -> str:
    x, y, z = steps.threads
    return f"{x * y * z:,} threads"


def _count(number: int, noun: str) -> str:
    return f"{'one' if number == 1 else f'{number:,}'} {noun}{'' if number == 1 else 's'}"
