"""What the metrics mean: one table, used by profiles, differences and reports.

Names are Nsight Compute's, checked on GH100; `labkit__*` are the emulator's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from labkit.errors import LabkitError


@dataclass(frozen=True)
class Metric:
    """One metric: `title` in words, `unit`, what it counts, and whether less or more of it is better."""

    name: str
    title: str
    unit: str
    text: str
    better: str | None = None


def _memory(kind: str, verb: str) -> tuple[Metric, ...]:
    at = f"l1tex__t_{{}}_pipe_lsu_mem_global_op_{kind}.sum"
    return (
        Metric(
            f"l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_{kind}.ratio",
            f"sectors per global {verb} request",
            "sectors",
            "How many 32-byte pieces of memory one warp touches at once; 4 when 32 lanes read 32 floats side by side.",
        ),
        Metric(
            at.format("requests"),
            f"global {verb} requests",
            "requests",
            f"Warp instructions that {verb} global memory, with at least one active lane.",
            "less",
        ),
        Metric(
            at.format("sectors"),
            f"global {verb} sectors",
            "sectors",
            "32-byte pieces that those requests touched, repeats counted again.",
            "less",
        ),
    )


def _shared(kind: str, verb: str) -> tuple[Metric, ...]:
    return (
        Metric(
            f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{kind}.sum",
            f"shared {verb} wavefronts",
            "wavefronts",
            "Passes through the 32 banks of shared memory; each takes a cycle.",
            "less",
        ),
        Metric(
            f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{kind}.sum",
            f"shared {verb} bank conflicts",
            "wavefronts",
            "Extra passes because lanes wanted different words of the same bank.",
            "less",
        ),
    )


STALL_REASONS = {  # ncu's reason: what a warp waits for
    "long_scoreboard": "data from global or local memory",
    "short_scoreboard": "data from shared memory or special functions",
    "barrier": "the other warps of its block, at a barrier",
    "mio_throttle": "a place in the queue to shared memory",
    "lg_throttle": "a place in the queue to global memory",
    "math_pipe_throttle": "a free arithmetic pipe",
    "dispatch_stall": "the dispatcher, such as for operands in one register bank",
    "wait": "the fixed latency of the instruction before",
    "not_selected": "its turn: it could issue, and another warp did",
    "no_instruction": "instructions to be fetched",
    "branch_resolving": "a branch to be decided",
    "membar": "a memory fence",
}


def _stalls() -> tuple[Metric, ...]:
    return tuple(
        Metric(
            f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio",
            f"stalled: {reason.replace('_', ' ')}",
            "warps",
            f"Warps that wait for {what}, on average over the cycles in which an instruction issues.",
            "less",
        )
        for reason, what in STALL_REASONS.items()
    )


def _flops() -> tuple[Metric, ...]:
    kinds = {"f": "float32", "d": "float64", "h": "float16"}
    ops = {"add": "additions", "mul": "multiplications", "fma": "multiply-adds"}
    return tuple(
        Metric(
            f"smsp__sass_thread_inst_executed_op_{k}{o}_pred_on.sum",
            f"{kinds[k]} {ops[o]}",
            "operations",
            f"{ops[o].capitalize()} that threads carried out"
            + ("; each is two floating-point operations." if o == "fma" else "."),
        )
        for k in kinds
        for o in ops
    )


def _tensor() -> tuple[Metric, ...]:
    kinds = {"bf16_dst_fp32": "bfloat16", "fp16": "float16", "tf32_dst_fp32": "tf32", "int8": "int8", "fp64": "float64"}
    return tuple(
        Metric(
            f"sm__ops_path_tensor_src_{name}.sum",
            f"tensor operations of {title}",
            "operations",
            "Multiplications and additions on the tensor cores, a multiply-add counted twice.",
        )
        for name, title in kinds.items()
    )


OCCUPANCY_LIMITS = {"registers": "registers", "shared_mem": "shared memory", "warps": "warps", "blocks": "block slots"}


METRICS = (
    Metric("gpu__time_duration.sum", "time", "ns", "From the kernel's start to its end.", "less"),
    *_memory("ld", "load"),
    *_memory("st", "store"),
    *_memory("atom", "atomic"),
    *_memory("red", "reduction"),
    Metric(
        "dram__bytes_read.sum",
        "DRAM bytes read",
        "bytes",
        "Read from the GPU's memory. Emulated: the distinct 64-byte pieces, as if the caches kept all, the machine "
        "code, and 2 KB that every launch reads.",
        "less",
    ),
    Metric("dram__bytes_write.sum", "DRAM bytes written", "bytes", "Written to the GPU's memory.", "less"),
    Metric(
        "labkit__distinct_bytes_global_op_ld.sum",
        "distinct bytes loaded",
        "bytes",
        "Different bytes of global memory that were loaded at least once: no kernel can load fewer.",
    ),
    Metric(
        "labkit__distinct_bytes_global_op_st.sum",
        "distinct bytes stored",
        "bytes",
        "Different bytes of global memory that were stored at least once.",
    ),
    Metric(
        "lts__t_sectors_srcunit_tex.sum",
        "sectors from L1 to L2",
        "sectors",
        "32-byte pieces that L1 asked L2 for: what L1 could not serve itself.",
        "less",
    ),
    Metric("lts__t_bytes.sum", "L2 traffic", "bytes", "Bytes that went through L2.", "less"),
    *_shared("ld", "load"),
    *_shared("st", "store"),
    *_shared("atom", "atomic"),
    *(
        metric
        for kind, verb in (("ld", "load"), ("st", "store"))
        for metric in (
            Metric(
                f"smsp__sass_inst_executed_op_local_{kind}.sum",
                f"local {verb} instructions",
                "instructions",
                "Warp instructions on local memory: arrays and registers that did not fit in registers.",
                "less",
            ),
            Metric(
                f"l1tex__average_t_sectors_per_request_pipe_lsu_mem_local_op_{kind}.ratio",
                f"sectors per local {verb} request",
                "sectors",
                "32-byte pieces of local memory per request.",
            ),
            Metric(
                f"l1tex__t_requests_pipe_lsu_mem_local_op_{kind}.sum",
                f"local {verb} requests",
                "requests",
                "One per warp instruction and 4 bytes of width.",
                "less",
            ),
            Metric(
                f"l1tex__t_sectors_pipe_lsu_mem_local_op_{kind}.sum",
                f"local {verb} sectors",
                "sectors",
                "32-byte pieces of local memory.",
                "less",
            ),
        )
    ),
    *_flops(),
    *_tensor(),
    Metric(
        "smsp__inst_executed.sum",
        "warp instructions",
        "instructions",
        "Instructions issued, each for a whole warp. Emulated: PTX instructions.",
        "less",
    ),
    Metric(
        "smsp__thread_inst_executed.sum",
        "thread instructions",
        "instructions",
        "The same, counted once per active lane.",
    ),
    Metric(
        "smsp__thread_inst_executed_per_inst_executed.ratio",
        "active lanes per instruction",
        "of 32 lanes",
        "Below 32, lanes of a warp sit out: divergence, or blocks that are no multiple of 32 threads.",
        "more",
    ),
    Metric(
        "smsp__sass_branch_targets_threads_divergent.sum",
        "divergent branches",
        "branches",
        "Branches at which the lanes of a warp parted.",
        "less",
    ),
    Metric(
        "sm__warps_active.avg.pct_of_peak_sustained_active",
        "achieved occupancy",
        "%",
        "Warps resident on a multiprocessor, of the most it can hold.",
    ),
    Metric(
        "sm__maximum_warps_per_active_cycle_pct",
        "theoretical occupancy",
        "%",
        "Warps that a multiprocessor can hold of this kernel at once, of the most it can hold of any.",
    ),
    *(
        Metric(
            f"launch__occupancy_limit_{name}",
            f"blocks by {title}",
            "blocks per multiprocessor",
            f"How many blocks of this kernel a multiprocessor could hold if only {title} were scarce.",
        )
        for name, title in OCCUPANCY_LIMITS.items()
    ),
    Metric("launch__registers_per_thread", "registers per thread", "registers", "What ptxas gave each thread."),
    Metric(
        "launch__shared_mem_per_block_static",
        "static shared memory",
        "bytes per block",
        "Shared memory that the kernel declares.",
    ),
    Metric(
        "launch__shared_mem_per_block_dynamic",
        "dynamic shared memory",
        "bytes per block",
        "Shared memory that the launch asks for.",
    ),
    Metric("labkit__code_bytes", "machine code", "bytes", "The kernel's instructions, 16 bytes each."),
    Metric("labkit__stack_bytes", "stack", "bytes per thread", "Local memory of each thread."),
    Metric(
        "labkit__spill_bytes",
        "register spills",
        "bytes",
        "Registers that ptxas moved to local memory, loads and stores in the code.",
        "less",
    ),
    Metric(
        "labkit__inst_executed_busiest_block.sum",
        "work of the busiest block",
        "instructions",
        "Warp instructions of the block that runs the most, of each launch; all instructions over these are the blocks "
        "that share the work.",
        "less",
    ),
    Metric("launch__grid_size", "blocks", "blocks", "Blocks of the launch, of several launches together."),
    Metric("launch__block_size", "threads per block", "threads", "Threads of a block."),
    Metric("launch__thread_count", "threads", "threads", "Threads of the launch, of several together."),
    Metric(
        "launch__waves_per_multiprocessor",
        "waves",
        "waves",
        "How often the GPU is filled with blocks; the last wave may be partly empty.",
    ),
)
# What no emulator knows.
STALLS = (
    Metric(
        "lts__t_sector_hit_rate.pct",
        "L2 hit rate",
        "%",
        "Of the 32-byte pieces that L2 was asked for, those that it had.",
        "more",
    ),
    Metric(
        "smsp__issue_active.avg.pct_of_peak_sustained_active",
        "issue slots used",
        "%",
        "Cycles in which a scheduler issued an instruction.",
        "more",
    ),
    Metric(
        "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active",
        "FMA pipe",
        "%",
        "Use of the pipe for float32 multiplications and additions.",
        "more",
    ),
    *(
        Metric(
            f"sm__inst_executed_pipe_{pipe}.avg.pct_of_peak_sustained_active",
            f"{title} pipe",
            "%",
            f"Use of the pipe for {what}.",
        )
        for pipe, title, what in (
            ("alu", "integer", "integers, comparisons and logic"),
            ("xu", "special function", "exponentials, roots and conversions"),
            ("fp64", "FP64", "float64 operations"),
        )
    ),
    *_stalls(),
)
BY_NAME = {metric.name: metric for metric in METRICS + STALLS}

# What ncu is asked for when nobody says otherwise.
DEFAULT = tuple(m.name for m in METRICS if not m.name.startswith("labkit__") and "_op_h" not in m.name)


def _about(*words: str) -> tuple[str, ...]:
    return tuple(n for n in (*DEFAULT, *(m.name for m in STALLS)) if any(word in n for word in words))


# What ncu is asked for by the name of a set; "full" is what `explain` needs, each other a part that is read faster.
_ALWAYS = ("gpu__time_duration", "launch__")
SETS = {
    "full": _about(""),
    "quick": _about(*_ALWAYS, "dram__bytes", "srcunit_tex"),
    "memory": _about(*_ALWAYS, "dram__", "lts__", "l1tex__", "_op_local_"),
    "compute": _about(*_ALWAYS, "_inst_executed", "issue_active", "sm__warps_active"),
    "tensor": _about(*_ALWAYS, "sm__ops_path_tensor"),
    "source": _about(*_ALWAYS, "_inst_executed", "mem_global_op", "mem_shared_op"),  # and counts per line
    "stalls": _about(*_ALWAYS, "issue_stalled", "issue_active", "sm__warps_active", "smsp__inst_executed.sum"),
}


def metric_set(name: str) -> tuple[str, ...]:
    """The metrics of a named set; LabkitError names the sets there are."""
    if name not in SETS:
        raise LabkitError(f"There is no set of metrics {name!r}; there are {', '.join(SETS)}.")
    return SETS[name]


def describe(name: str) -> Metric:
    """The table's entry, or one made of the name alone."""
    return BY_NAME.get(name) or Metric(name, name, "", "")


def unknown_metric(name: str, known: Mapping[str, float]) -> LabkitError:
    """The error for a metric that a profile does not have; it names the nearest that it has."""
    requests = name.replace("average_t_sectors_per_request", "t_requests").replace(".ratio", ".sum")
    if requests != name and known.get(requests) == 0:
        return LabkitError(
            f"This profile has no {describe(name).title}, for there are no {describe(requests).title}: does the kernel "
            "do its work yet?"
        )
    found = sorted(known, key=lambda other: -_likeness(name.lower(), other))[:3]
    tail = f" The nearest are {', '.join(found)}." if found else ""
    if name in BY_NAME:
        return LabkitError(f"This profile has no {name} ({BY_NAME[name].title}): it was not measured here.{tail}")
    return LabkitError(f"No metric of this profile is called {name!r}.{tail}")


def _likeness(name: str, metric: str) -> float:
    """How near a metric is to what someone typed: words shared with its name and title, then spelling."""
    import difflib
    import re

    def split(text: str) -> set[str]:
        return set(re.split(r"[^a-z0-9]+", text.lower())) - {""}

    words, own = split(name.replace("_", " ")), split(f"{metric.replace('_', ' ')} {describe(metric).title}")
    shared = len(words & own) / max(len(words), 1)
    return shared + difflib.SequenceMatcher(None, name, metric).ratio()


def amount(value: float) -> str:
    """A count as people read it: 1,048,576; 8.5; 0.333."""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.3g}" if abs(value) < 100 else f"{value:,.1f}"
