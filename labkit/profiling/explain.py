"""What binds a kernel, in three sentences: the verdict, the counters that show it, and what hides or feeds it.

A kernel is bound by a resource that it uses to near its ceiling; by the tail where multiprocessors have no blocks; and
where neither holds by latency: it waits, and keeps too little in flight to fill the time (Little's law: what is in
flight = rate x latency).
"""

from __future__ import annotations

import html
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from labkit import recorded
from labkit.errors import LabkitError
from labkit.models import devices
from labkit.models.occupancy import occupancy
from labkit.profiling.metrics import STALL_REASONS

if TYPE_CHECKING:
    from labkit.profiling.profile import Profile

THRESHOLDS = {
    "busy": (0.60, "use of a resource, of its ceiling, from which it binds (Nsight Compute's own rule has 60%)"),
    "active": (0.60, "multiprocessors at work, on average over the time, below which the tail binds"),
    "useful": (0.80, "FP32 work per issue slot used, from which FP32 binds and not the slots"),
    "queue": (0.15, "share of the stalls that are waits for the queue to L1, from which L1 binds ..."),
    "sectors": (0.50, "... if it also serves this many sectors per clock and multiprocessor"),
    "scattered": (8.0, "sectors per global request from which lanes count as scattered: 4 are enough for 32 floats"),
    "narrow": (2.0, "sectors per global request below which most lanes count as idle or on the same words"),
}
REFERENCE = "NVIDIA H200"  # whose rates are assumed for emulated counters

_PCT = ".avg.pct_of_peak_sustained_"
_ISSUE = f"smsp__issue_active{_PCT}active"
_TENSOR = f"sm__pipe_tensor_cycles_active{_PCT}active"
_PIPES = {  # narrower than a warp per clock, so that they are full before the issue slots are
    name: f"sm__inst_executed_pipe_{pipe}{_PCT}active"
    for name, pipe in (("integer", "alu"), ("special functions", "xu"), ("FP64", "fp64"))
}
_SPEED_OF_LIGHT = {  # ncu's section of that name, for reports that have nothing else
    "DRAM": (f"gpu__dram_throughput{_PCT}elapsed", f"dram__throughput{_PCT}elapsed"),
    "L2": (f"lts__throughput{_PCT}elapsed",),
    "L1": (f"l1tex__throughput{_PCT}active",),
    "issue": (f"sm__throughput{_PCT}elapsed",),
}
_WORDS = {
    "DRAM": "the bandwidth of device memory",
    "L2": "the bandwidth of the L2 cache",
    "L1": "the rate at which L1 serves global accesses",
    "shared": "the bandwidth of shared memory",
    "issue": "issue slots: instructions that do not compute the result take them",
    "FP32": "the FP32 units",
    "tensor": "the tensor cores",
    "integer": "the pipe for integers, comparisons and logic",
    "special functions": "the pipe for exponentials, roots and conversions",
    "FP64": "the FP64 units",
    "latency": "latency: warps wait, and no unit is near its limit",
    "tail": "the tail: multiprocessors without blocks",
}
VERDICTS = tuple(_WORDS)


@dataclass(frozen=True)
class Explanation:
    """What binds (a key of `VERDICTS`), and why.

    uses: fractions of the ceilings, by resource.  certain: False where counters were emulated, or latency
    is concluded without a count of the issue slots.
    """

    binds: str
    sentences: tuple[str, str, str]
    uses: dict[str, float]
    certain: bool

    def __str__(self) -> str:
        return " ".join(self.sentences)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        first, *others = (html.escape(sentence) for sentence in self.sentences)
        return f"<p><b>{first}</b> {' '.join(others)}</p>"


def explain(profile: Profile) -> Explanation:
    """What binds the profiled kernel; LabkitError where the counters say too little to tell."""
    m = _Counters(profile)
    if profile.origin == "emulated":
        return _from_counts(m)
    uses = m.uses()
    if not uses:
        raise LabkitError(
            f"The profile of {profile.kernel} has neither a time with traffic nor throughputs, so what binds cannot be "
            "told; profile it with the default metrics."
        )
    binds = _binding(m, uses)
    verdict = f"{profile.kernel} is bound by {_WORDS[binds]}."
    certain = binds != "latency" or "issue" in uses
    if not certain:
        verdict = f"{verdict[:-1]}, or by issue slots, which were not counted."
    return Explanation(binds, (verdict, _evidence(m, uses, binds), _remedy(m, uses, binds)), uses, certain)


def _over(name: str, value: float) -> bool:
    return value >= THRESHOLDS[name][0]


def _binding(m: _Counters, uses: dict[str, float]) -> str:
    if m.active is not None and not _over("active", m.active):
        return "tail"
    top = max(uses, key=uses.__getitem__)
    if _over("busy", uses[top]):
        fp32 = uses.get("FP32", 0)
        return "FP32" if top == "issue" and _over("busy", fp32) and _over("useful", fp32 / uses[top]) else top
    if _over("queue", m.stall_shares.get("lg_throttle", 0)) and _over("sectors", m.sectors_per_clock):
        return "L1"
    return "latency"


class _Counters:
    """The counters of a profile, combined to rates; None or {} where something is missing."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.get = profile.metrics.get
        name = REFERENCE if profile.origin == "emulated" else self._machine()
        measured = recorded.ceilings(name)
        known = devices.DEVICES.get(name)
        self.rates = measured or (known.rates if known else {})
        self.kind = "measured" if measured else "datasheet"
        self.name = name
        self.sms = known.sms if known else None
        self.clock = known.clock_mhz / 1e3 if known and known.clock_mhz else None  # GHz: per ns
        self.ns = self.get("gpu__time_duration.sum")

    def _machine(self) -> str:
        return self.profile.machine.get("machine") or self.profile.machine.get("GPU", "")

    def sum(self, pattern: str, kinds: str) -> float:
        """The sum of a counter over kinds of access, such as "ld st"."""
        return sum(self.get(pattern.format(kind), 0.0) for kind in kinds.split())

    @property
    def dram(self) -> float:
        return self.get("dram__bytes_read.sum", 0.0) + self.get("dram__bytes_write.sum", 0.0)

    @property
    def l2(self) -> float:
        return 32 * self.get("lts__t_sectors_srcunit_tex.sum", 0.0)

    @property
    def wavefronts(self) -> float:
        return self.sum("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{}.sum", "ld st atom")

    @property
    def requests(self) -> float:
        return self.sum("l1tex__t_requests_pipe_lsu_mem_global_op_{}.sum", "ld st atom red")

    @property
    def sectors(self) -> float:
        return self.sum("l1tex__t_sectors_pipe_lsu_mem_global_op_{}.sum", "ld st atom red")

    @property
    def flops(self) -> float:
        return self.sum("smsp__sass_thread_inst_executed_op_f{}_pred_on.sum", "add mul fma fma")

    @property
    def tensor(self) -> float:
        """Nanoseconds that the tensor cores need at their ceilings; 0 where these are not known."""
        return sum(
            self.sum("sm__ops_path_tensor_src_{}.sum", kinds) / 1e3 / self.rates[rate]
            for kinds, rate in (("bf16_dst_fp32 fp16", "bf16_tflops"), ("int8", "int8_tops"))
            if rate in self.rates
        )

    @property
    def active(self) -> float | None:
        """Multiprocessors at work on average over the time: issue per active cycle against issue per cycle.

        Cycles are counted by scheduler. Where a multiprocessor has fewer warps than schedulers, those without any do
        not count as idle: such a kernel lacks warps, not blocks.
        """
        issue, done = self.get(_ISSUE), self.get("smsp__inst_executed.sum")
        if not (issue and done and self.ns and self.sms and self.clock):
            return None
        return min(1.0, done / (self.schedulers * self.sms * issue / 100) / (self.ns * self.clock))

    @property
    def schedulers(self) -> int:
        """Those of a multiprocessor that have a warp, 1 to 4."""
        blocks = self.get("launch__grid_size", self.sms)
        warps = self.get("launch__thread_count", math.inf) / 32 / min(self.sms, blocks)
        return 4 if warps >= 4 else max(1, math.ceil(warps))

    @property
    def sectors_per_clock(self) -> float:
        """Sectors that L1 serves per clock and multiprocessor."""
        if not (self.ns and self.sms and self.clock):
            return 0.0
        return self.sectors / (self.sms * self.ns * self.clock)

    @property
    def stalls(self) -> dict[str, float]:
        """Warps that wait, per scheduler and cycle, by reason."""
        issue = self.get(_ISSUE, 0.0) / 100
        per_issue = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
        return {reason: issue * self.get(per_issue.format(reason), 0.0) for reason in STALL_REASONS}

    @property
    def stall_shares(self) -> dict[str, float]:
        total = sum(self.stalls.values())
        return {reason: warps / total for reason, warps in self.stalls.items()} if total else {}

    def uses(self) -> dict[str, float]:
        """Fractions of the ceilings that were reached; of issue slots and tensor cores while multiprocessors work."""
        found = {}
        if self.ns:
            for name, done, rate in (
                ("DRAM", self.dram, "read_gbps"),
                ("L2", self.l2, "l2_gbps"),
                ("shared", 128 * self.wavefronts, "shared_gbps"),
                ("FP32", self.flops / 1e3, "fp32_tflops"),
            ):
                if done and rate in self.rates:
                    found[name] = done / self.ns / self.rates[rate]
            if self.tensor:
                found["tensor"] = self.tensor / self.ns
        for name, metric in (("issue", _ISSUE), ("tensor", _TENSOR), *_PIPES.items()):
            if self.get(metric):
                found[name] = self.get(metric) / 100
        for name, metrics in _SPEED_OF_LIGHT.items():
            value = next((self.get(metric) for metric in metrics if self.get(metric) is not None), None)
            if name not in found and value is not None:
                found[name] = value / 100
        # Nsight Compute's figure for L1 has shared memory in it, which is a part of L1.
        if "L1" in found and found.get("shared", 0) > 0.8 * found["L1"]:
            del found["L1"]
        return found


def _evidence(m: _Counters, uses: dict[str, float], binds: str) -> str:
    """The sentence with the counters behind the verdict."""
    ranking = sorted(uses.items(), key=lambda use: -use[1])
    shown = ", ".join(f"{name} {_percent(use)}" for name, use in ranking[:4])
    of = f"of the {m.kind} ceilings of the {m.name}" if m.rates else "of peak"
    if binds == "tail":
        blocks = m.get("launch__grid_size", 0)
        return (
            f"Only {_percent(m.active)} of the multiprocessors had work on average (smsp__inst_executed.sum over "
            f"time, against smsp__issue_active), with launch__grid_size {blocks:,.0f} on {m.sms} multiprocessors; "
            f"{of}: {shown}."
        )
    if binds == "L1" and not _over("busy", uses.get("L1", 0)):
        return (
            f"Waits for the queue to L1 are {_percent(m.stall_shares['lg_throttle'])} of the stalls (lg_throttle), "
            f"while each multiprocessor gets {m.sectors_per_clock:.2f} sectors per clock; {of}: {shown}."
        )
    if binds == "latency":
        return f"Nothing is used to {_percent(THRESHOLDS['busy'][0])} {of}: {shown}."
    return f"It reaches, {of}: {shown}."


def _remedy(m: _Counters, uses: dict[str, float], binds: str) -> str:
    """The sentence on what lies behind it."""
    if binds in ("DRAM", "L2", "L1"):
        return _coalescing(m) or "Requests are not wasteful: what helps is less traffic, by reuse of what was loaded."
    if binds == "shared":
        conflicts = m.sum("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{}.sum", "ld st atom")
        per = 32 * m.wavefronts / m.flops if m.flops else 0
        return (
            f"{_percent(conflicts / m.wavefronts)} of the wavefronts are bank conflicts"
            + (f", and there are {per:.2g} wavefronts per warp-wide FLOP" if per else "")
            + "; keep more in registers, or load wider, for fewer of them."
        )
    if binds in ("issue", "FP32", "tensor", *_PIPES):
        part = _percent(uses["FP32"] / uses[binds]) if uses.get("FP32") and binds == "issue" else ""
        waits = _main_stall(m)
        text = (
            f"FP32 work fills {part} of the slots that are used; the rest is addresses, loads and loops" if part else ""
        )
        return f"{text or 'More speed takes fewer operations, or cheaper ones'}{f'; {waits}' if waits else ''}."
    if binds == "tail":
        return (
            "More and smaller blocks, or several blocks per output, would give every multiprocessor work"
            + (f"; {waits}" if (waits := _main_stall(m)) else "") + "."
        )  # fmt: skip
    known = [_main_stall(m), _in_flight(m).rstrip(".")]
    occupied = m.get("sm__warps_active.avg.pct_of_peak_sustained_active")
    if occupied:
        known.append(f"{occupied:.3g}% of the warps that fit are resident (sm__warps_active)")
    text = "; ".join(part for part in known if part) or _coalescing(m).rstrip(".")
    if not text:
        return "What the warps wait for, and how much they keep in flight, this report does not say: it takes stalls."
    return text[0].upper() + text[1:] + "."


def _main_stall(m: _Counters) -> str:
    """The largest reason but "not_selected", in which a warp could issue."""
    waits = {reason: warps for reason, warps in m.stalls.items() if warps and reason != "not_selected"}
    if not waits:
        return ""
    reason = max(waits, key=waits.__getitem__)
    return f"warps wait most for {STALL_REASONS[reason]} ({reason}, {_percent(m.stall_shares[reason])} of the stalls)"


def _coalescing(m: _Counters) -> str:
    """What the worst kind of global access wastes."""
    verbs = {"ld": "loads", "st": "stores"}
    for kind in sorted(verbs, key=lambda kind: -m.get(f"l1tex__t_sectors_pipe_lsu_mem_global_op_{kind}.sum", 0.0)):
        ratio = m.get(f"l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_{kind}.ratio", 0.0)
        if ratio and (_over("scattered", ratio) or not _over("narrow", ratio)):
            why = "lanes lie far apart" if ratio > 4 else "most lanes are idle or read the same words"
            return (
                f"Global {verbs[kind]} touch {ratio:.1f} sectors per request "
                f"(l1tex__average_t_sectors_per_request, op_{kind}), where 32 floats side by side are 4: {why}."
            )
    return ""


def _in_flight(m: _Counters) -> str:
    """Little's law: what is in flight toward memory, and what the ceiling would need at the same latency."""
    waiting = m.stalls["long_scoreboard"]
    if not (waiting and m.requests and m.active and m.dram and m.l2 and "l2_gbps" in m.rates):
        return ""
    latency = waiting * m.schedulers * m.sms * m.active / (m.requests / m.ns)  # warps that wait over requests per ns
    name, rate, ceiling = max(
        ("DRAM", m.dram / m.ns, m.rates["read_gbps"]),
        ("L2", m.l2 / m.ns, m.rates["l2_gbps"]),
        key=lambda level: level[1] / level[2],
    )
    return (
        f"at {latency:,.0f} ns of waiting per request, {rate * latency / 1e3:,.0f} KB are in flight from {name}, "
        f"and its ceiling of {ceiling:,.0f} GB/s needs {ceiling * latency / 1e3:,.0f} KB (Little's law)."
    )


def _from_counts(m: _Counters) -> Explanation:
    """Emulated counters have no time: the least time that each resource needs on the reference GPU, side by side."""
    per_clock = m.sms * m.clock  # of one per clock and multiprocessor, per ns
    scattered = m.requests and _over("scattered", m.sectors / m.requests)
    least = {
        "DRAM": m.dram / m.rates["read_gbps"],
        "L1": (m.sectors if scattered else max(m.requests, m.sectors / 4)) / per_clock,
        "shared": 128 * m.wavefronts / m.rates["shared_gbps"],
        "issue": m.get("smsp__inst_executed.sum", 0.0) / (4 * per_clock),
        "FP32": m.flops / 1e3 / m.rates["fp32_tflops"],
        "tensor": m.tensor,
    }
    longest = max(least.values())
    uses = {name: time / longest for name, time in least.items() if time}
    top = max(uses, key=uses.__getitem__)
    useful = top == "issue" and _over("useful", uses.get("FP32", 0))
    binds = "FP32" if useful else top
    blocks, fits = m.get("launch__grid_size", 0.0), _resident(m)
    if blocks and blocks / (m.sms * -(-blocks // m.sms)) < THRESHOLDS["active"][0]:
        binds = "tail"
    ranking = sorted(uses.items(), key=lambda use: -use[1])
    shown = ", ".join(f"{name} {use * longest / 1e3:,.3g} us" for name, use in ranking[:4])
    return Explanation(
        binds,
        (
            f"{m.profile.kernel} would be bound by {_WORDS[binds]}, if latency were hidden; that is less certain "
            "than a measured verdict.",
            f"Its emulated counts take at least this long on the {m.name} ({m.kind} rates), resource by resource: "
            f"{shown}; it has {blocks:,.0f} blocks for {m.sms} multiprocessors{fits}.",
            _coalescing(m) + (" " if _coalescing(m) else "")
            + "Not to be known without a GPU: the time, what warps wait for, and what the caches keep.",
        ),
        uses,
        False,
    )  # fmt: skip


def _resident(m: _Counters) -> str:
    shared = m.get("launch__shared_mem_per_block_static", 0) + m.get("launch__shared_mem_per_block_dynamic", 0)
    threads, registers = m.get("launch__block_size"), m.get("launch__registers_per_thread")
    if not (threads and registers):
        return ""
    fits = occupancy(int(threads), int(registers), int(shared))
    return f", and {fits.fraction:.0%} of the warps of one fit at once ({fits.limiter})"


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.0f}%" if fraction >= 0.095 else f"{100 * fraction:.2g}%"
