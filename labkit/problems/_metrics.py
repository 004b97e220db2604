"""Short names of the metrics that gates of the ladders are about; profiles and ncu know them by the long ones."""

from __future__ import annotations

LOADS = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"
STORES = "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum"
LOAD_SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
STORE_SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"
SHARED_LOADS = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"
LOAD_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"
SHARED_BYTES = "launch__shared_mem_per_block_static"
LANES = "smsp__thread_inst_executed_per_inst_executed.ratio"
DIVERGENT = "smsp__sass_branch_targets_threads_divergent.sum"
INSTRUCTIONS = "smsp__inst_executed.sum"
BUSIEST = "labkit__inst_executed_busiest_block.sum"
