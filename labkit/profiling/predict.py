"""`lk.predict`: the modeled time of a rung, of a function's launches, or of what a profile has counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from labkit.errors import LabkitError
from labkit.models import speed
from labkit.models.speed import Prediction, Work
from labkit.profiling.profile import Profile


def predict(what: Any, device: str = speed.REFERENCE, **shape: int) -> Prediction:
    """How long a kernel would take on a device, by the speed-of-light model; no GPU is needed.

    what : a rung of a ladder, at `shape` (its bench shape if none is given); a function that launches kernels; or a
    Profile. For the first two a few blocks of the launch run on the emulator, at its real size.
    device : a name of the table of devices, or a part of it that fits one only.
    Raises LabkitError where `what` is none of these, or too little is known of the device.
    """
    from labkit.profiling.sample import works

    if isinstance(what, Profile):
        if shape:
            raise LabkitError("A profile has its own shape; give a rung to predict another one.")
        return of_profile(what, device)
    if hasattr(what, "launches") and hasattr(what, "problem"):
        run = what.launches(what.problem.dims_of(shape or what.problem.bench_shape))
        at = " ".join(f"{name}={size}" for name, size in run["shape"].items())
        return speed.predict(works(run["fn"], run["names"]), device, label=f"{run['label']} {at}")
    if isinstance(what, Callable) and not shape:
        return speed.predict(works(what), device)
    raise LabkitError("predict takes a rung, a profile, or a function without arguments that launches kernels.")


def of_profile(profile: Profile, device: str = speed.REFERENCE) -> Prediction:
    """The time for a profile's counters, all launches as one; waiting is known only to `predict` of a rung."""
    m = profile.metrics
    if "launch__grid_size" not in m or "smsp__inst_executed.sum" not in m:
        raise LabkitError(
            f"The profile of {profile.kernel} lacks the launch or the instructions; profile it with the set full."
        )

    def total(pattern: str, kinds: str) -> float:
        return sum(m.get(pattern.format(kind), 0.0) for kind in kinds.split())

    requests = total("l1tex__t_requests_pipe_lsu_mem_global_op_{}.sum", "ld st atom red")
    sectors = total("l1tex__t_sectors_pipe_lsu_mem_global_op_{}.sum", "ld st atom red")
    # Which sectors share a line is not counted: scattered lanes have one each, others four.
    scattered = requests and sectors / requests >= 8
    flops = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
    work = Work(
        blocks=int(m["launch__grid_size"]),
        threads=int(m["launch__block_size"]),
        registers=int(m.get("launch__registers_per_thread", 0)),
        shared=int(total("launch__shared_mem_per_block_{}", "static dynamic")),
        dram_read=m.get("dram__bytes_read.sum", 0.0),
        dram_written=m.get("dram__bytes_write.sum") or m.get("labkit__distinct_bytes_global_op_st.sum", 0.0),
        l2_loaded=m.get("lts__t_sectors_srcunit_tex.sum", 0.0),
        lines=sectors if scattered else max(requests, sectors / 4),
        wavefronts=total("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{}.sum", "ld st atom"),
        instructions=m["smsp__inst_executed.sum"],
        fp32=total(flops, "fadd fmul ffma ffma"),  # a multiply-add is two operations
        fp64=total(flops, "dadd dmul dfma"),
        tensor=total("sm__ops_path_tensor_src_{}.sum", "bf16_dst_fp32 fp16 tf32_dst_fp32 int8"),
    )
    at = " ".join(f"{name}={size}" for name, size in profile.shape.items())
    label = f"{profile.kernel} {at}".strip()
    return speed.predict([work], device, label=label, notes=(f"Counters: {profile.origin}.",))

