"""Step through one warp of a kernel: its source lines, active lanes, loads, stores and shared memory."""

from __future__ import annotations

import html
import linecache
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from labkit.emulator.steps import Access, Array, Steps
from labkit.errors import LabkitError

LIMIT = 20_000  # instructions of the block that are kept
AROUND = 2  # source lines shown above and below
ACCESSES = 8  # of one moment, at most
CELLS = 16  # rows and columns of a shared array, at most
VERBS = {"ld": "loads", "st": "stores"}


@dataclass(frozen=True)
class Moment:
    """One turn of a warp at a source line: `mask` has its active lanes as bits, `shared` the shared arrays then."""

    line: int | None
    text: str
    mask: int
    accesses: tuple[Access, ...]
    shared: dict[str, np.ndarray]

    @property
    def lanes(self) -> tuple[int, ...]:
        """The active lanes."""
        return tuple(n for n in range(32) if self.mask >> n & 1)

    def touched(self, array: Array, lane: int | None = None) -> set[tuple[int, ...]]:
        """The indices of the elements of `array` that the warp, or one lane of it, touches here."""
        found: set = set()
        for access in self.accesses:
            if access.array == array:
                at = access.addresses if lane is None else access.addresses[lane : lane + 1]
                at = at[at >= 0]
                each = max(access.width // array.itemsize, 1)
                numbers = ((at - array.start) // array.itemsize)[:, None] + np.arange(each)
                found |= set(zip(*(i.tolist() for i in array.indices(numbers.ravel())), strict=True))
        return found


def step(
    kernel: Any, grid: int | Sequence[int], block: int | Sequence[int], args: Sequence[Any], shared: int = 0, *,
    of: tuple[int, int, int] = (0, 0, 0), warp: int = 0,
) -> Stepper:  # fmt: skip
    """Run `kernel[grid, block](*args)` on the emulator and step through one warp of it, line by line.

    kernel, grid, block, args, shared : as for `lk.emulate`. of : the block, and `warp` the warp in it.
    Raises KernelFault where the kernel does wrong, LabkitError where there is no such block or warp.
    """
    from labkit.emulator.engine import Emulation
    from labkit.kernels import emulating, launchable

    launchable(kernel)
    steps = Steps(of, warp=warp, limit=LIMIT)
    with emulating(Emulation(steps=steps)):
        kernel[grid, block, 0, shared](*args)
    if not steps.pcs:
        raise LabkitError(f"There is no block {of} in a grid of {grid}.")
    steps.finish()
    return Stepper(steps)


class Stepper:
    """The moments of one warp, and where we are: `next()`, `back()`, `goto(n)`, `text()`; `list(stepper)` has them all.

    `only(lane)` shows the values of that lane alone.
    PTX keeps no names of variables: what is shown are the values that go from and to memory.
    """

    def __init__(self, steps: Steps) -> None:
        self.steps = steps
        self.moments = _moments(steps)
        self.position = 0
        self.lane: int | None = None

    def __len__(self) -> int:
        return len(self.moments)

    def __iter__(self) -> Iterator[Moment]:
        return iter(self.moments)

    def __getitem__(self, n: int) -> Moment:
        return self.moments[n]

    @property
    def now(self) -> Moment:
        return self.moments[self.position]

    def goto(self, n: int) -> Stepper:
        """Go to moment `n`, counted from 0 (from the end if negative); LabkitError where there is none."""
        if not -len(self) <= n < len(self):
            raise LabkitError(f"There is no moment {n}: they are numbered 0 to {len(self) - 1}.")
        self.position = n % len(self)
        return self

    def next(self) -> Stepper:
        """One moment on; the last one stays."""
        return self.goto(min(self.position + 1, len(self) - 1))

    def back(self) -> Stepper:
        """One moment back; the first one stays."""
        return self.goto(max(self.position - 1, 0))

    def to_line(self, line: int) -> Stepper:
        """On to the next moment at source line `line`; LabkitError where none follows."""
        for n in range(self.position + 1, len(self)):
            if self.moments[n].line == line:
                return self.goto(n)
        raise LabkitError(f"Line {line} does not come again.")

    def only(self, lane: int | None) -> Stepper:
        """From now on show the values of one lane, 0 to 31, or of all of them again (None)."""
        if lane is not None and not 0 <= lane < 32:
            raise LabkitError(f"There is no lane {lane}: a warp has the lanes 0 to 31.")
        self.lane = lane
        return self

    # ---- as text

    @property
    def title(self) -> str:
        s = self.steps
        return f"{s.kernel}, block {s.block}, warp {s.warp}: moment {self.position} of {len(self) - 1}"

    def text(self) -> str:
        """The current moment."""
        now = self.now
        lanes = "".join("#" if now.mask >> n & 1 else "." for n in range(32))
        lines = [self.title, ""]
        lines += [f"{'>' if n == now.line else ' '} {n:4}  {text}".rstrip() for n, text in self._around()]
        lines += ["", f"lanes 0 to 31: {lanes}  {len(now.lanes)} active"]
        if self.lane is not None:
            lines[-1] += f"; lane {self.lane} is shown"
        for access in now.accesses[:ACCESSES]:
            lines += ["", _heading(access)]
            cells = [f"{who:>11}: {what} = {value}" for who, what, value in _values(access, self.lane)]
            lines += ["".join(f"{cell:34}" for cell in cells[k::down]).rstrip() for down in [-(-len(cells) // 3)]
                      for k in range(down)]  # fmt: skip
        if len(now.accesses) > ACCESSES:
            lines += ["", f"and {len(now.accesses) - ACCESSES} more loads and stores"]
        for array in self._arrays(now):
            lines += ["", f"{array.name} in shared memory, afterwards ([ ]: touched here)"]
            for row in _cells(array, now, self.lane):
                lines.append(" ".join(f"{f'[{v}]' if on else v:>8}" for v, on in row))
        return "\n".join([*lines, *(("", *self.steps.notes) if self.steps.notes else ())])

    __repr__ = __str__ = text

    # ---- in a notebook

    def _repr_html_(self) -> str:
        return self._html(self._lanes())

    def _lanes(self) -> str:
        lane = "display:inline-block;width:18px;text-align:center;font-size:10px;margin-right:1px"
        on, off = "background:#4c78a8;color:white", "background:#eceef0;color:#9aa0a6"
        return "".join(f"<span style='{lane};{on if self.now.mask >> n & 1 else off}'>{n}</span>" for n in range(32))

    def _html(self, lanes: str) -> str:
        now = self.now
        code = "".join(
            f"<div style='{'background:#fff3cd;font-weight:bold' if n == now.line else ''}'>"
            f"<span style='color:gray'>{n:4}  </span>{html.escape(text)}</div>"
            for n, text in self._around()
        )
        chosen = "" if self.lane is None else f"; the values of lane {self.lane}"
        parts = [
            f"<div><b>{html.escape(self.title)}</b></div>",
            f"<div style='font-family:monospace;white-space:pre;margin:6px 0'>{code}</div>",
            f"<div>{lanes} {len(now.lanes)} of 32 lanes active{chosen}</div>",
        ]
        cell, plain = "padding:0 6px;border:0;text-align:left;font-family:monospace", "<tr style='background:none'>"
        part = "<div style='margin-top:6px'>"
        for access in now.accesses[:ACCESSES]:
            groups = _values(access, self.lane)
            down = -(-len(groups) // 4)
            cells = [
                f"<td style='{cell};color:gray'>{who}</td><td style='{cell}'>{html.escape(what)} = <b>{value}</b></td>"
                for who, what, value in groups
            ]
            rows = "".join(f"{plain}{''.join(cells[k::down])}</tr>" for k in range(down))
            parts.append(f"{part}{_heading(access)}</div><table style='font-size:12px'>{rows}</table>")
        if len(now.accesses) > ACCESSES:
            parts.append(f"<div>and {len(now.accesses) - ACCESSES} more loads and stores</div>")
        for array in self._arrays(now):
            shade = {True: "#fdd9a8", False: "#f7f8f9"}
            rows = "".join(
                plain + "".join(f"<td style='{cell};background:{shade[on]}'>{v}</td>" for v, on in row) + "</tr>"
                for row in _cells(array, now, self.lane)
            )
            parts.append(
                f"{part}<b>{html.escape(array.name)}</b> in shared memory, afterwards; "
                f"orange: touched here</div><table style='font-size:11px'>{rows}</table>"
            )
        parts += [f"<div style='color:gray'>{html.escape(note)}</div>" for note in self.steps.notes]
        return "".join(parts)

    def _ipython_display_(self) -> None:
        from IPython.display import display

        plain = {"text/html": self._repr_html_(), "text/plain": self.text()}
        try:
            import ipywidgets
        except ImportError:
            hint = "<div style='color:gray'>On with .next(), .back(), .goto(n), .to_line(n) and .only(lane).</div>"
            display({**plain, "text/html": plain["text/html"] + hint}, raw=True)
            return
        box = self._widgets(ipywidgets)
        # Where there are no widgets, as in an exported notebook, the moment itself is shown.
        display({**box._repr_mimebundle_(), **plain}, raw=True)

    def _widgets(self, ipywidgets: Any) -> Any:
        """Buttons and a slider over the moments, a button per lane, and the moment below them."""
        slider = ipywidgets.IntSlider(self.position, 0, len(self) - 1, description="moment")
        view = ipywidgets.HTML()
        back, on = ipywidgets.Button(description="back"), ipywidgets.Button(description="next")
        small = {"width": "28px", "height": "22px", "padding": "0", "margin": "0 1px 0 0"}
        lanes = [ipywidgets.Button(description=str(n), layout=small, tooltip=f"lane {n}") for n in range(32)]

        def draw() -> None:
            view.value = self._html("")
            back.disabled, on.disabled = self.position == 0, self.position == len(self) - 1
            for n, button in enumerate(lanes):
                active = self.now.mask >> n & 1
                button.style.button_color = "#f58518" if n == self.lane else "#4c78a8" if active else "#eceef0"
                button.style.text_color = "white" if active or n == self.lane else "#9aa0a6"
                button.style.font_size = "10px"

        def moved(change: Any) -> None:
            self.goto(change["new"])
            draw()

        def press(by: int) -> None:
            slider.value += by

        def choose(lane: int) -> None:
            self.only(None if lane == self.lane else lane)
            draw()

        slider.observe(moved, names="value")
        back.on_click(lambda _: press(-1))
        on.on_click(lambda _: press(1))
        for n, button in enumerate(lanes):
            button.on_click(lambda _, n=n: choose(n))
        draw()
        rows = [ipywidgets.HBox([back, on, slider]), ipywidgets.HBox(lanes), view]
        return ipywidgets.VBox(rows)

    # ---- parts of both

    def _around(self) -> list[tuple[int, str]]:
        source = linecache.getlines(self.steps.program.file or "")
        if self.now.line is None:
            return []
        numbers = range(max(self.now.line - AROUND, 1), min(self.now.line + AROUND, len(source)) + 1)
        return [(n, source[n - 1].rstrip()) for n in numbers]

    def _arrays(self, moment: Moment) -> list[Array]:
        return [self.steps.arrays[name] for name in moment.shared if moment.touched(self.steps.arrays[name])]


def _moments(steps: Steps) -> list[Moment]:
    mine = steps.of_warp(steps.warp)
    groups: list[list[int]] = []
    for k in mine:
        last = groups[-1][-1] if groups else None
        if (
            last is None
            or steps.instruction(k).line != steps.instruction(last).line
            or steps.lanes[k, steps.warp] != steps.lanes[last, steps.warp]
            or steps.pcs[k] <= steps.pcs[last]
        ):
            groups.append([])
        groups[-1].append(int(k))
    accesses: dict[int, list[Access]] = {}
    for access in steps.accesses:
        accesses.setdefault(access.step, []).append(access)
    starts = [group[0] for group in groups[1:]]
    found = []
    for k, group in enumerate(groups):
        line = steps.instruction(group[0]).line
        here = tuple(a for n in group for a in accesses.get(n, ()))
        after = starts[k] if k < len(starts) else len(steps.pcs)
        mask = int(steps.lanes[group[0], steps.warp])
        found.append(Moment(line, steps.text(line), mask, here, _shared(steps, after)))
    return found


def _shared(steps: Steps, before: int) -> dict[str, np.ndarray]:
    """The shared arrays as they are before step `before`."""
    at = [contents for step, contents in steps.shared if step <= before]
    kinds = {access.array.name: access.dtype for access in steps.accesses if access.array is not None}
    found = {}
    for name, array in steps.arrays.items():
        if array.space == "shared" and at and name in kinds and kinds[name].itemsize == array.itemsize:
            size = int(np.prod(array.shape)) * array.itemsize
            found[name] = at[-1][array.start : array.start + size].view(kinds[name]).reshape(array.shape)
    return found


def _heading(access: Access) -> str:
    where = {"global": "global memory", "shared": "shared memory"}[access.space]
    name = access.array.name if access.array else "memory"
    wide = f", {access.width} bytes per lane" if access.width > access.dtype.itemsize else ""
    return f"{VERBS.get(access.op, 'updates')} {name} ({where}{wide})"


def _values(access: Access, only: int | None = None) -> list[tuple[str, str, str]]:
    """(lanes, element, value), neighboring lanes with the same element together; of one lane if it is named."""
    found: list[list] = []
    for lane in np.flatnonzero(access.addresses >= 0):
        if only is not None and lane != only:
            continue
        label, value = access.label(lane), ", ".join(_show(v) for v in access.values[lane])
        if found and found[-1][1] == lane - 1 and found[-1][2:] == [label, value]:
            found[-1][1] = int(lane)
        else:
            found.append([int(lane), int(lane), label, value])
    return [(f"lane {a}" if a == b else f"lanes {a}-{b}", label, value) for a, b, label, value in found]


def _cells(array: Array, moment: Moment, lane: int | None = None) -> list[list[tuple[str, bool]]]:
    """The first rows and columns of a shared array as text, each with whether the warp, or that lane, touches it."""
    values, touched = moment.shared[array.name], moment.touched(array, lane)
    rows = values.reshape(-1, values.shape[-1]) if values.ndim > 1 else np.pad(values, (0, -len(values) % CELLS))
    rows = rows.reshape(-1, rows.shape[-1] if values.ndim > 1 else CELLS)
    out = []
    for r in range(min(len(rows), CELLS)):
        row = []
        for c in range(min(rows.shape[1], CELLS)):
            number = r * rows.shape[1] + c
            if number < values.size:
                row.append((_show(rows[r, c]), tuple(map(int, np.unravel_index(number, values.shape))) in touched))
        if rows.shape[1] > CELLS:
            row.append(("...", False))
        out.append(row)
    if len(rows) > CELLS:
        out.append([("...", False)])
    return out


def _show(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, np.floating) else str(value)
