# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Matrix multiplication on tensor cores
#
# Every multiply-add so far was one of 32 that a warp does with one instruction. Since 2017 there is another
# kind of unit on NVIDIA's GPUs, the **tensor core**: a warp hands it two small matrices, and it hands back
# their product. One instruction, 2048 multiply-adds.
#
# That changes what is hard. Arithmetic becomes so cheap that everything around it has to be done again, and
# better: how numbers come into registers, how they lie in shared memory, who waits for whom, and in which
# order the tiles of $C$ are computed. By the end of this notebook you know which lane of a warp holds which
# element, can predict a bank conflict and remove it without wasting a byte, and can say what a `float16` and
# a `bfloat16` cost in accuracy.
#
# You write two kernels in numba, `mma_sync` and `mma_async`. Three more, in CUDA C++, are there to be read,
# or written if you like. They take `float16` and sum in `float32`. Tensor cores of this kind are in every GPU
# from Ampere on; without a GPU the emulator does what they do.

# %%
import labkit as lk

gemm_f16 = lk.problem("gemm_f16")
gemm_f16

# %% [markdown]
# ## What it is worth
#
# The rates that an H200 really reaches, as `labkit ceilings` recorded them: multiply-adds of the ordinary
# units, and matrix products of PyTorch's library on tensor cores.

# %%
from labkit import recorded

rates = recorded.ceilings("NVIDIA H200")
for name in ("fp32_tflops", "bf16_tflops"):
    print(f"{name:12} {rates[name]:6.1f} TFLOP/s (recorded)")

# %% [markdown]
# What does one instruction replace?

# %% question="gemm_f16/wmma/instructions" points=1
predicted_ffma = lk.answer("gemm_f16/wmma/instructions", 128)
predicted_ffma

# %% solved_only=true
assert rates["bf16_tflops"] > 10 * rates["fp32_tflops"]
assert predicted_ffma.value == 2 * (16 * 8 * 16) / 32

# %% [markdown]
# ## Fragments: who holds what
#
# `m16n8k16` multiplies a 16 x 16 piece of $A$ by a 16 x 8 piece of $B$ and adds the result to a 16 x 8 piece
# of $C$. No lane has room for such a piece. Each is spread over the registers of all 32 lanes, as a
# **fragment**, and the instruction reads the registers of all of them at once. NVIDIA's manual of PTX (the
# GPU's assembly language) says which lane holds which element. Drawn, with the numbers of the lanes:

# %% jupyter={"source_hidden": true}
import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from labkit.emulator.tensor import mma_layout

SHAPE_OF = {"a": (16, 16), "b": (16, 8), "c": (16, 8)}
layout = {name: mma_layout(name, 16, 8, 16, "f32" if name == "c" else "f16") for name in SHAPE_OF}


def held_by(places, shape):
    """For each element of a matrix, the lane that holds it. places: element numbers by lane and place."""
    lanes = np.empty(shape, int)
    for lane, elements in enumerate(places):
        lanes.flat[elements] = lane
    return lanes


def draw(matrices, title, mark=6, height=470):
    """Pieces of matrices with the lane of each element; `mark` is framed. matrices: title -> lanes."""
    shapes = [lanes.shape for lanes in matrices.values()]
    figure = make_subplots(1, len(shapes), column_widths=[cols for _, cols in shapes], horizontal_spacing=0.05,
                           subplot_titles=list(matrices))
    for column, lanes in enumerate(matrices.values(), 1):
        figure.add_heatmap(
            z=lanes, text=lanes, texttemplate="%{text}", textfont=dict(size=10), xgap=1, ygap=1, zmin=0, zmax=31,
            colorscale=[(0, "#eaf2fa"), (0.5, "#9ecae1"), (1, "#4292c6")], showscale=False, row=1, col=column,
            hovertemplate="row %{y}, column %{x}: lane %{z}<extra></extra>",
        )
        for row, col in np.argwhere(lanes == mark):
            figure.add_shape(type="rect", x0=col - 0.5, x1=col + 0.5, y0=row - 0.5, y1=row + 0.5,
                             line=dict(color="#d93025", width=2), row=1, col=column)
    figure.update_yaxes(autorange="reversed", showgrid=False, dtick=4)
    figure.update_xaxes(showgrid=False, dtick=4)
    figure.update_layout(title=title, template="plotly_white", height=height, margin=dict(t=90, b=30))
    return figure


draw(
    {f"{name.upper()}, {size[0]} x {size[1]}": held_by(layout[name], size) for name, size in SHAPE_OF.items()},
    "m16n8k16: the lane that holds each element; lane 6 framed",
)

# %% [markdown]
# It looks wild and is simple. Split the lane's number $n$ into $g = n / 4$ (rounded down) and
# $q = n \bmod 4$. Then, in blocks of 8 x 8:
#
# - of $A$ and $C$, the lane holds row $g$, columns $2q$ and $2q + 1$;
# - of $B$, it is the other way round: column $g$, rows $2q$ and $2q + 1$.
#
# Two `float16` lie in one register of 32 bits. So a fragment of $A$ takes 4 registers of each lane, one of $B$
# takes 2, and the sums, in `float32`, take 4.

# %% [markdown]
# <details><summary>Hint 1: which block</summary>
#
# Row 9 is in the lower block of 8 rows. Which of its rows is it?
#
# <details><summary>Hint 2: g and q</summary>
#
# That row is $g$. Columns 4 and 5 are a pair: which one?
#
# </details></details>

# %% question="gemm_f16/mma_sync/lane_of_c" points=1
predicted_lane = lk.answer("gemm_f16/mma_sync/lane_of_c", 6)
predicted_lane

# %% [markdown]
# ### See
#
# Believe no drawing. Here is one warp that fills its fragments by that rule, without any shared memory, does
# one multiplication, and puts its four sums where the rule says:

# %%
from numba import cuda, float32
from numba.cuda.types import float16


@cuda.jit
def one_product(C, A, B):
    lane = cuda.threadIdx.x
    g, q = lane // 4, lane % 4

    def two_of_a(row, k):
        return lk.cuda.pack_f16x2(float32(A[row, k]), float32(A[row, k + 1]))

    def two_of_b(k, column):
        return lk.cuda.pack_f16x2(float32(B[k, column]), float32(B[k + 1, column]))

    a = (two_of_a(g, 2 * q), two_of_a(g + 8, 2 * q), two_of_a(g, 2 * q + 8), two_of_a(g + 8, 2 * q + 8))
    b = (two_of_b(2 * q, g), two_of_b(2 * q + 8, g))
    zero = float32(0)
    c = lk.cuda.mma_m16n8k16(a, b, (zero, zero, zero, zero))
    C[g, 2 * q] = c[0]
    C[g, 2 * q + 1] = c[1]
    C[g + 8, 2 * q] = c[2]
    C[g + 8, 2 * q + 1] = c[3]


random = np.random.default_rng(0)
a16, b16 = random.standard_normal((16, 16)).astype(np.float16), random.standard_normal((16, 8)).astype(np.float16)
product = np.zeros((16, 8), np.float32)
p_one = lk.emulate(one_product, 1, 32, [product, a16, b16])
print(f"largest difference to A @ B: {abs(product - a16.astype(float) @ b16).max():.1e}")

# %%
OPERATIONS = "sm__ops_path_tensor_src_fp16.sum"  # of tensor cores; a multiply-add is two
REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"
SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
SHARED = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"
CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"
SHARED_STORES = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum"
FMA = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"
INSTRUCTIONS = "smsp__inst_executed.sum"
REGISTERS = "launch__registers_per_thread"
SHARED_BYTES = "launch__shared_mem_per_block_static"

print(f"{p_one[OPERATIONS]:.0f} tensor operations, {p_one[FMA]:.0f} multiply-adds of the ordinary kind")

# %% solved_only=true
assert abs(product - a16.astype(float) @ b16).max() < 1e-5
assert p_one[OPERATIONS] == 2 * 16 * 8 * 16 and p_one[FMA] == 0
assert held_by(layout["c"], (16, 8))[9, 5] == predicted_lane.value
n = np.arange(32)
g, q = n // 4, n % 4
assert (layout["c"] == np.stack([(g + 8 * i) * 8 + 2 * q + e for i in (0, 1) for e in (0, 1)], axis=1)).all()
assert (layout["b"] == np.stack([(8 * i + 2 * q + e) * 8 + g for i in (0, 1) for e in (0, 1)], axis=1)).all()
pairs = [(g + 8 * i) * 16 + 8 * k + 2 * q + e for k in (0, 1) for i in (0, 1) for e in (0, 1)]
assert (layout["a"] == np.stack(pairs, axis=1)).all()

# %% [markdown]
# ## Rung: wmma
#
# CUDA C++ has a gentler way: `nvcuda::wmma`. You name a fragment of 16 x 16, load it from an address, multiply,
# store. Where its elements lie you are not told, and need not know. Here is the whole kernel; one warp per
# 16 x 16 of $C$. (numba has no such thing, so this one is given, as is the next one.)
#
# ### Predict

# %% [markdown]
# <details><summary>Hint 1: work</summary>
#
# 16 x 16 x 16 multiply-adds, of two operations each.
#
# <details><summary>Hint 2: bytes</summary>
#
# Two fragments of 256 elements, 2 bytes each.
#
# </details></details>

# %% question="gemm_f16/wmma/peak_intensity" points=1
predicted_wmma = lk.answer("gemm_f16/wmma/peak_intensity", 8)
predicted_wmma

# %% [markdown]
# ### Read
#
# Run the cell, it is your kernel now. The lines that matter are the five in the loop.

# %% kernel="gemm_f16/wmma" language="cuda" given=true

# %% check="gemm_f16/wmma" language="cuda"
wmma = gemm_f16["wmma", "cuda"]
wmma.check()

# %% [markdown]
# ### Profile

# %%
shape = dict(M=256, N=256, K=128)
p_wmma = wmma.profile(**shape)


def intensity(p):
    """FLOP per byte of the sectors that global loads touch."""
    if not p[SECTORS]:
        raise lk.LabkitError(f"{p.kernel} loads nothing yet; write it, run its cell, and come back.")
    return p[OPERATIONS] / (32 * p[SECTORS])


flops = 2 * shape["M"] * shape["N"] * shape["K"]
print(f"{p_wmma[OPERATIONS]:,.0f} tensor operations of {flops:,} that are needed ({p_wmma.origin})")
print(f"{p_wmma[INSTRUCTIONS]:,.0f} instructions; multiply-adds alone would be {flops // 64:,}")
print(f"{intensity(p_wmma):g} FLOP per byte of its sectors")

# %% [markdown]
# Half of what you predicted. Each fragment is loaded with 4 bytes per lane and instruction, and here is one of
# those loads:

# %%
lk.plots.access_map(p_wmma, "A")

# %% [markdown]
# A lane needs pairs: row $g$, columns $2q$ and $2q + 1$, you know it from above. So the first load takes the
# left half of 8 rows, a second one the right half, and each touches 8 sectors to use one half of them. The
# kernel asks for every byte once, and the cache serves every sector twice.

# %% solved_only=true
assert p_wmma[OPERATIONS] == flops and p_wmma[FMA] == 0 and p_wmma[INSTRUCTIONS] < flops / 64
assert p_wmma[OPERATIONS] / (32 * 4 * p_wmma[REQUESTS]) == predicted_wmma.value == 2 * intensity(p_wmma)
load = next(a for a in p_wmma.accesses if a.array == "A")
assert load.width == 4 and len({address // 32 for address in load.addresses}) == 8

# %% [markdown]
# ### What wmma hides
#
# The layout of wmma's fragments is not in the manual, and may differ from GPU to GPU. On an H200 it was found
# out and recorded, for the emulator: load a matrix that contains its own indices, and see who got what.

# %% jupyter={"source_hidden": true}
from labkit.emulator.tensor import wmma_layout

sums = wmma_layout("c", (16, 16, 16), "f32")
draw({"C of wmma, 16 x 16 (recorded on an H200)": held_by(sums, (16, 16))}, "The secret of wmma; lane 6 framed")

# %% [markdown]
# Two fragments of `m16n8k16`, side by side. wmma is the same instruction, twice, with the details put away:
# convenient, and in the way as soon as you want to *do* something with an element, such as store it, scale it,
# or use it as the input of the next product.

# %% solved_only=true
left = sums[:, :4] // 16 * 8 + sums[:, :4] % 16
right = sums[:, 4:] // 16 * 8 + sums[:, 4:] % 16 - 8
assert (left == layout["c"]).all() and (right == layout["c"]).all()
assert (wmma_layout("a", (16, 16, 16), "f16")[:, :8] == layout["a"]).all()

# %% [markdown]
# ## Rung: wmma_tiled
#
# What helped the ordinary kernels helps here: tiles in shared memory, 128 x 128 of $C$ per block, and several
# fragments per warp. A tile of $A$ is 128 x 32 and one of $B$ is 32 x 128.
#
# ### Predict

# %% question="gemm_f16/wmma_tiled/intensity" points=1
predicted_tiled = lk.answer("gemm_f16/wmma_tiled/intensity", 64)
predicted_tiled

# %% [markdown]
# Now the banks. A fragment is read in pieces of 8 rows, 16 bytes of each. If those 128 bytes meet all 32 banks,
# one pass delivers them. Do they?

# %% [markdown]
# <details><summary>Hint 1: where rows begin</summary>
#
# 32 elements of 2 bytes: rows begin 64 bytes, or 16 banks, apart. Write down the bank in which each of the 8
# rows begins.
#
# <details><summary>Hint 2: how many meet</summary>
#
# They begin in bank 0 or in bank 16. How many of the 8 rows in each?
#
# <details><summary>Hint 3: with padding</summary>
#
# 80 bytes are 20 banks. Multiples of 20, modulo 32; each row takes 4 banks from there on. Do any two overlap?
#
# </details></details></details>

# %% question="gemm_f16/wmma_tiled/conflicts" points=2
predicted_bare = lk.answer("gemm_f16/wmma_tiled/conflicts", 4)
predicted_bare

# %% question="gemm_f16/wmma_tiled/conflicts_padded" points=1
predicted_padded = lk.answer("gemm_f16/wmma_tiled/conflicts_padded", 1)
predicted_padded

# %% [markdown]
# ### Read
#
# Look for `LDA` and `LDB`, and for how often a fragment is used once it is loaded.

# %% kernel="gemm_f16/wmma_tiled" language="cuda" given=true

# %% check="gemm_f16/wmma_tiled" language="cuda"
wmma_tiled = gemm_f16["wmma_tiled", "cuda"]
wmma_tiled.check()

# %% [markdown]
# ### Profile

# %%
p_tiled = wmma_tiled.profile(**shape)
p_tiled.diff(p_wmma)

# %%
print(f"{intensity(p_tiled):g} FLOP per byte, {p_tiled[CONFLICTS]:.0f} bank conflicts of shared loads")

# %% [markdown]
# As predicted, and no conflict. To see what the padding is for, take it away. This is the same kernel with
# other lengths of rows:

# %%
import tempfile
from pathlib import Path

folder = Path(tempfile.mkdtemp())
p_pad = {}
for pad in (0, 8, 16):
    file = folder / f"pad{pad}.cu"
    file.write_text(wmma_tiled.source.replace("BK + 8", f"BK + {pad}").replace("BN + 8", f"BN + {pad}"))
    p_pad[pad] = wmma_tiled.load(file).profile(M=128, N=128, K=64)
    print(f"{2 * pad:2} bytes of padding: {p_pad[pad][SHARED]:6.0f} wavefronts of shared loads, "
          f"{p_pad[pad][CONFLICTS]:6.0f} of them conflicts")

# %%
lk.plots.access_map(p_pad[0], "tA")

# %% [markdown]
# (Drawn with `A`'s tile unpadded.) Eight rows want the same few banks. A tile of $B$ fares worse still: its rows
# of 256 bytes all begin in the same bank. And twice the padding is not twice as good: it brings conflicts back.

# %% solved_only=true
def passes(p, array):
    """Wavefronts of the first 8 lanes' 16 bytes in the first read of a shared array."""
    access = next(a for a in p.accesses if a.array == array and a.op == "ld")
    words = [(address // 4 + w) % 32 for address in access.addresses[:8] for w in range(access.width // 4)]
    return max(words.count(bank) for bank in words)


assert intensity(p_tiled) == predicted_tiled.value
assert passes(p_pad[0], "tA") == predicted_bare.value and passes(p_pad[8], "tA") == predicted_padded.value
assert passes(p_pad[0], "tB") == 8 and passes(p_pad[8], "tB") == 1
assert p_pad[8][CONFLICTS] == 0 == p_tiled[CONFLICTS] < p_pad[16][CONFLICTS] < p_pad[0][CONFLICTS]

# %% [markdown]
# ## Rung: mma_sync
#
# Now the instructions underneath, and in numba. There are two:
#
# - `lk.cuda.mma_m16n8k16(a, b, c)`, which you know;
# - `lk.cuda.ldmatrix(tile, i)`, which brings four 8 x 8 matrices from shared memory into fragments. Each lane
#   names one row of 16 bytes: lane $n$ says where row $n \bmod 8$ of matrix $n / 8$ begins, and *receives* of
#   each matrix the pair that the rule above gives it. `ldmatrix_transposed` turns each matrix round on its way,
#   which is what $B$ needs: a lane wants two elements *below* each other.
#
# Here it is on its own. A warp loads 16 x 16 from a tile whose rows are `pitch` elements apart. Lanes 0 to 15
# name the 16 rows, and lanes 16 to 31 the same rows 8 elements further: that gives the four registers of a
# fragment of $A$ in their order.


# %%
@cuda.jit
def load_fragment(out, pitch, swizzle):
    lane = cuda.threadIdx.x
    tile = cuda.shared.array(16 * 72, float16, alignment=128)
    for i in range(lane, 16 * pitch, 32):
        tile[i] = float16(i)
    cuda.syncwarp()
    row, piece = lane % 16, lane // 16
    if swizzle:
        piece ^= row // 2 % 4
    four = lk.cuda.ldmatrix(tile, row * pitch + piece * 8)
    for e in range(4):
        out[lane, e] = four[e]


def fragment(pitch, swizzle=0):
    out = np.zeros((32, 4), np.uint32)
    return lk.emulate(load_fragment, 1, 32, [out, pitch, swizzle]), out


p_bare, registers = fragment(32)
lane = 6
halves = [registers[lane, e : e + 1].view(np.float16).astype(int).tolist() for e in range(4)]
print(f"lane {lane} received elements {halves} of a tile with rows of 32")

# %% [markdown]
# Check it against the drawing: the pairs are in row 1 and row 9, columns 4 and 5, then 12 and 13. Four matrices
# of 128 bytes cannot come in fewer than 4 wavefronts. How many it takes depends on the pitch:

# %% jupyter={"source_hidden": true}
pitches = list(range(16, 73, 8))
counts = [fragment(pitch)[0][SHARED] for pitch in pitches]
names = [f"{pitch}" for pitch in pitches] + ["32, swizzled"]
counts.append(fragment(32, 1)[0][SHARED])
figure = go.Figure(
    go.Bar(x=names, y=counts, texttemplate="%{y:d}",
           marker_color=["#2171b5" if count == 4 else "#c6dbef" for count in counts])
)
figure.update_layout(
    title="Wavefronts of one ldmatrix of four matrices (emulated)", template="plotly_white", height=340,
    xaxis=dict(title="elements from one row to the next", type="category"), yaxis=dict(title="wavefronts", dtick=8),
)

# %% [markdown]
# ### Swizzle
#
# The last bar has rows of 32, no padding, and no conflicts. How? The 16-byte pieces of a row **change places**:
# piece $p$ of row $r$ is stored in place $p \oplus (r / 2 \bmod 4)$, where $\oplus$ is the bitwise exclusive or.
# Below, each line is 128 bytes, all banks once, and holds two rows of the tile. Piece 1 of each row is dark:

# %% jupyter={"source_hidden": true}
figure = make_subplots(1, 2, subplot_titles=["as it is", "swizzled"], horizontal_spacing=0.08)
for column, swizzle in enumerate((0, 1), 1):
    z, text = np.zeros((4, 8)), np.full((4, 8), "", dtype=object)
    for row in range(8):
        for piece in range(4):
            at = row // 2, row % 2 * 4 + (piece ^ (row // 2 % 4 if swizzle else 0))
            z[at], text[at] = piece == 1, f"row {row}<br>piece {piece}"
    figure.add_heatmap(z=z, text=text, texttemplate="%{text}", textfont=dict(size=10), xgap=2, ygap=2, showscale=False,
                       colorscale=[(0, "#eaf2fa"), (1, "#9ecae1")], hoverinfo="skip", row=1, col=column)
figure.update_xaxes(tickvals=list(range(8)), ticktext=[f"{4 * i}-{4 * i + 3}" for i in range(8)], title="banks")
figure.update_yaxes(autorange="reversed", showticklabels=False)
figure.update_layout(title="Eight rows of a tile of A in the banks", template="plotly_white", height=340)

# %% [markdown]
# The dark pieces, which one matrix of `ldmatrix` needs, stand in two columns on the left, and in eight on the
# right: every bank once. Whoever writes the tile and whoever reads it must use the same rule; that is all.
#
# ### Predict

# %% question="gemm_f16/mma_sync/swizzled_piece" points=1
predicted_piece = lk.answer("gemm_f16/mma_sync/swizzled_piece", 2)
predicted_piece

# %% [markdown]
# <details><summary>Hint 1: one k</summary>
#
# For one `k`, the product of 64 rows and 32 columns needs one element of $A$ for each row and one of $B$ for
# each column.
#
# <details><summary>Hint 2: divide</summary>
#
# It does 64 times 32 multiply-adds with them.
#
# </details></details>

# %% question="gemm_f16/mma_sync/reads_per_multiply_add" points=2
predicted_reads = lk.answer("gemm_f16/mma_sync/reads_per_multiply_add", 3 / 64)
predicted_reads

# %% solved_only=true
assert halves == [[36, 37], [9 * 32 + 4, 9 * 32 + 5], [44, 45], [9 * 32 + 12, 9 * 32 + 13]]
assert dict(zip(names, counts))["32"] == 16 == 4 * predicted_bare.value
assert dict(zip(names, counts))["40"] == 4 == dict(zip(names, counts))["32, swizzled"]
assert all((count == 4) == (pitch % 16 == 8) for pitch, count in zip(pitches, counts))
assert predicted_piece.value == 1 ^ 6 // 2 % 4

# %% [markdown]
# ### Write
#
# A block of 8 warps computes 128 x 128 of $C$, a warp 64 x 32 of it: 4 x 4 multiplications of 16 x 8 per step
# of 16 along $K$. The sums `c` and the stores at the end are there. `b` is for fragments of $B$, which serve all
# the rows of the warp.

# %% [markdown]
# <details><summary>Hint 1: the plan</summary>
#
# As in smem_tile: for each 32 of $K$, copy both tiles, wait, multiply, wait. Zeros stand for what lies outside.
#
# <details><summary>Hint 2: copy, swizzled</summary>
#
# Element `(r, k)` of $A$'s tile lies at `r * BK`, plus 8 times the place of its piece, plus `k % 8`. Its piece is
# `k // 8`. In $B$'s tile a row has 128 elements, 16 pieces, and begins in bank 0 whatever its number: there, the
# exclusive or is with `k % 8`.
#
# <details><summary>Hint 3: multiply</summary>
#
# ```
# for k in 0, 16:
#     for each 16 columns of the warp:
#         lane n names row k + n % 16 of tB, and the piece of the columns, one further for n of 16 and more
#         ldmatrix_transposed gives 4 registers: 2 for the left 8 columns, 2 for the right 8
#     for each 16 rows of the warp:
#         lane n names row n % 16 of them in tA, and the piece of k, one further for n of 16 and more
#         a = ldmatrix ...
#         for each 8 columns: multiply, and put the 4 new sums into c
# ```
#
# `wm` and `wn` are where the warp's rows and columns begin in the tiles.
#
# </details></details></details>

# %% kernel="gemm_f16/mma_sync"

# %% check="gemm_f16/mma_sync" points=8
mma_sync = gemm_f16["mma_sync"]
mma_sync.check()

# %% [markdown]
# ### Profile

# %%
p_sync = mma_sync.profile(**shape)
p_sync.diff(p_tiled)


# %%
def reads(p):
    """Elements read from shared memory per multiply-add: a wavefront delivers 128 bytes, 64 elements."""
    if not p[OPERATIONS]:
        raise lk.LabkitError(f"{p.kernel} does not multiply yet; write it, run its cell, and come back.")
    return 64 * p[SHARED] / (p[OPERATIONS] / 2)


for p in (p_tiled, p_sync):
    print(f"{p.kernel:30} {reads(p):.4f} elements per multiply-add, {p[CONFLICTS]:.0f} conflicts")

# %% [markdown]
# If yours reads more, look where the fragments of $B$ are loaded: inside the loop over rows, they come again for
# each 16 rows. A warp of wmma_tiled has 32 x 64, and needs as many; but it reads its results once more from
# shared memory, for only through memory does an element of a wmma fragment get an address.
#
# Is that little enough? By NVIDIA's figures for an H100, a multiprocessor's tensor cores do 2048 multiply-adds
# of `float16` per cycle, and shared memory delivers one wavefront:

# %%
PER_CYCLE = 2048  # multiply-adds; NVIDIA H100 white paper: 4 tensor cores of 512

print(f"shared memory allows {min(1, 64 / (PER_CYCLE * reads(p_sync))):.0%} of the tensor cores' peak")

# %%
lk.plots.access_map(p_sync, "tA")

# %% [markdown]
# And how a block walks through $A$ (press play): a tile of 32 columns at a time, all of them once.

# %%
lk.plots.tile_walk(p_sync, "A")

# %% solved_only=true
assert reads(p_sync) == predicted_reads.value and p_sync[CONFLICTS] == 0
assert intensity(p_sync) == intensity(p_tiled)
results = 64 * 256 * 256 / 32 / (p_tiled[OPERATIONS] / 2)  # of wmma_tiled's sums, read back
assert abs(reads(p_tiled) - results - reads(p_sync)) < 1e-9
assert passes(p_sync, "tA") == 1 == passes(p_sync, "tB")
assert 0.6 < 64 / (PER_CYCLE * reads(p_sync)) < 0.7
assert p_sync[SHARED_BYTES] == 2 * (128 * 32 + 32 * 128) < p_tiled[SHARED_BYTES]

# %% [markdown]
# ### Explain
#
# Padding and swizzling both remove the conflicts. What does padding cost that swizzling does not? And what is
# harder with a swizzle?

# %% [markdown] explain="gemm_f16/mma_sync" points=2
# ### BEGIN SOLUTION
# Padding takes shared memory that holds no data, 8 of 40 elements in each row of A's tile: that much less is left
# for further stages or blocks. With a swizzle every byte is used, but an address is no longer a sum of a row's and a
# column's part: writer and reader must apply the same rule, and only whole pieces of 16 bytes stay together.
# ### END SOLUTION

# %% [markdown]
# ### Optional: the same in CUDA C++

# %% kernel="gemm_f16/mma_sync" language="cuda"

# %% check="gemm_f16/mma_sync" language="cuda"
gemm_f16["mma_sync", "cuda"].check()

# %% [markdown]
# ## Rung: mma_async
#
# A block of mma_sync copies, waits, multiplies, waits. While it copies, its tensor cores have nothing to do. Since
# Ampere there is an instruction for that, **cp.async**: it starts a copy of 16 bytes from global to shared memory,
# with no register between, and returns at once. With several **stages** of tiles in shared memory, the copies of
# the next steps are on their way while this one is multiplied:
#
# ```
#              step 0        step 1        step 2        step 3
# multiply     stage 0       stage 1       stage 2       stage 0 ...
# on its way   stages 1, 2   stages 2, 0   stages 0, 1   ...
# ```
#
# In numba: `lk.cuda.cp_async(tile, i, A, j, n)` starts a copy of `n` bytes, 16 or 0, and fills up with zeros;
# `cp_async_commit()` makes a **group** of what this thread started since the last one; `cp_async_wait(n)` waits
# until at most `n` groups of *this thread* are on their way.
#
# ### Predict

# %% question="gemm_f16/mma_async/stages" points=1
predicted_stages = lk.answer("gemm_f16/mma_async/stages", 3)
predicted_stages

# %% [markdown]
# ### Write
#
# `fetch` starts the copies of a stage, and is given; so are the places of elements. You write the pipeline.

# %% [markdown]
# <details><summary>Hint 1: before the loop</summary>
#
# Fetch all stages but one, and commit after each. Commit even if there was nothing to fetch, for small $K$: an
# empty group keeps the count right.
#
# <details><summary>Hint 2: in each step</summary>
#
# Wait until this step's group is there: with three stages, one more may be on its way. Then a barrier. Then start
# the copies of two steps ahead. Then multiply, as in mma_sync, from this stage's part of `tA` and `tB`.
#
# <details><summary>Hint 3: one barrier, not two</summary>
#
# Into which stage do the new copies go? Into the one that was multiplied a step ago. Who may still be reading it?
# Nobody that has passed this step's barrier. So one barrier, after the wait and before the fetch, serves both.
#
# </details></details></details>

# %% kernel="gemm_f16/mma_async"

# %% check="gemm_f16/mma_async" points=8
mma_async = gemm_f16["mma_async"]
mma_async.check()

# %% [markdown]
# ### Profile

# %%
p_async = mma_async.profile(**shape)
p_async.diff(p_sync)

# %%
for p in (p_sync, p_async):
    print(f"{p.kernel:18} {p[REQUESTS]:5.0f} load requests, {p[SECTORS]:.0f} sectors, {p[SHARED_STORES]:5.0f} "
          f"wavefronts of shared stores, {max(p.steps.phases)} barriers for {shape['K'] // 32} steps")

# %% [markdown]
# The same bytes, in pieces of 16 where they came 2 by 2, and no instruction stores them any more. (The hardware does
# write them to shared memory; but Nsight Compute counts no shared store for it, and neither does the emulator.)
# What the counts cannot show is the waiting that is gone. For that it takes a GPU and a clock.

# %% solved_only=true
assert p_sync[REQUESTS] == 8 * p_async[REQUESTS] and p_sync[SECTORS] == p_async[SECTORS]
assert p_async[SHARED_STORES] == 0 < p_sync[SHARED_STORES] and p_async[CONFLICTS] == 0
assert max(p_sync.steps.phases) == 2 * shape["K"] // 32 and max(p_async.steps.phases) == shape["K"] // 32
assert p_async[SHARED_BYTES] == 48 * 1024 == predicted_stages.value * p_sync[SHARED_BYTES]
assert reads(p_async) == reads(p_sync) and p_async[INSTRUCTIONS] < p_sync[INSTRUCTIONS] / 2

# %% [markdown]
# ### Explain
#
# `cp_async_wait` waits for the copies of the thread that calls it. Why is the barrier after it still needed, and what
# would go wrong with `cp_async_wait(2)`?

# %% [markdown] explain="gemm_f16/mma_async" points=2
# ### BEGIN SOLUTION
# A warp multiplies elements that other threads have copied, and a wait says nothing about theirs: only after the
# barrier has everybody waited for his own. With two groups allowed on their way, the group of this step may be one of
# them, and the tile would be read before it is written.
# ### END SOLUTION

# %% [markdown]
# ### Optional: the same in CUDA C++
#
# CUDA C++ may ask for more than 48 KiB, so this rung goes further: tiles of 128 x 256, 64 x 64 for a warp, four
# stages, and fragments loaded ahead too.

# %% question="gemm_f16/mma_async/multiplications_per_ldmatrix"
lk.answer("gemm_f16/mma_async/multiplications_per_ldmatrix", 4)

# %% question="gemm_f16/mma_async/shared_bytes"
lk.answer("gemm_f16/mma_async/shared_bytes", 98304)

# %% [markdown]
# For shared memory, 64 x 64 is what it takes: (64 + 64) / (64 x 64) = 1/32 elements per multiply-add, which is just
# what it can deliver to 2048 multiply-adds per cycle.

# %% kernel="gemm_f16/mma_async" language="cuda"

# %% check="gemm_f16/mma_async" language="cuda"
gemm_f16["mma_async", "cuda"].check()

# %% solved_only=true
p_cuda = gemm_f16["mma_async", "cuda"].profile(**shape)
assert reads(p_cuda) == 1 / 32 == 64 / PER_CYCLE

# %% [markdown]
# ## Rung: mma_tuned
#
# One level is left: the L2 cache, which all multiprocessors share. Blocks that run at the same time read the same rows
# of $A$ if their tiles lie side by side, and the same columns of $B$ if they lie below each other. What one of them has
# fetched from DRAM, the others find in the L2. So what DRAM must deliver depends on **which tiles are in flight
# together**.
#
# ### Predict

# %% [markdown]
# <details><summary>Hint 1: which rows, which columns</summary>
#
# Tiles in one row of tiles share 128 rows of $A$. Tiles below each other share 256 columns of $B$. Count the distinct
# rows and columns that are touched.
#
# <details><summary>Hint 2: bytes</summary>
#
# Each row of $A$ and each column of $B$ has 4096 elements of 2 bytes.
#
# </details></details>

# %% question="gemm_f16/mma_tuned/loads_row_order" points=2
predicted_rows = lk.answer("gemm_f16/mma_tuned/loads_row_order", 71303168)
predicted_rows

# %% question="gemm_f16/mma_tuned/loads_grouped" points=2
predicted_grouped = lk.answer("gemm_f16/mma_tuned/loads_grouped", 41943040)
predicted_grouped


# %% [markdown]
# ### See
#
# The tiles in an order by groups: `group` rows of tiles belong together, and within a group one goes down before one
# goes across. With groups of one row, it is the plain order, row by row.


# %%
def walk(tiles_m, tiles_n, group):
    """(row, column) of each tile of C, in the order in which they are computed."""
    order = []
    for first in range(0, tiles_m, group):
        rows = range(first, min(first + group, tiles_m))
        order += [(row, column) for column in range(tiles_n) for row in rows]
    return order


def bytes_of(tiles, K, size=2):
    """Distinct bytes of A and B that these tiles of 128 x 256 read."""
    return (128 * len({row for row, _ in tiles}) + 256 * len({column for _, column in tiles})) * K * size


tiles_m, tiles_n, K = 32, 32, 4096  # C is 4096 x 8192
in_flight = {group: walk(tiles_m, tiles_n, group)[:128] for group in (1, 8, 16)}
for group, tiles in in_flight.items():
    print(f"groups of {group:2} rows: the first 128 tiles read {bytes_of(tiles, K) / 1e6:.1f} MB of A and B")

# %% jupyter={"source_hidden": true}
figure = make_subplots(1, 3, subplot_titles=[f"groups of {group}" for group in in_flight], horizontal_spacing=0.05)
for column, tiles in enumerate(in_flight.values(), 1):
    z = np.full((tiles_m, tiles_n), np.nan)
    for number, at in enumerate(tiles):
        z[at] = number
    figure.add_heatmap(z=z, colorscale=[(0, "#eaf2fa"), (1, "#2171b5")], zmin=0, zmax=127, xgap=1, ygap=1, row=1,
                       col=column, showscale=column == 3, colorbar=dict(title="order", thickness=14, tickvals=[0, 64]),
                       hovertemplate="tile row %{y}, column %{x}: number %{z}<extra></extra>")
figure.update_yaxes(autorange="reversed", showgrid=False)
figure.update_xaxes(showgrid=False, title="columns of 256")
figure.update_yaxes(title="rows of 128", row=1, col=1)
figure.update_layout(title="The first 128 tiles of C in flight", template="plotly_white", height=400)

# %% [markdown]
# The L2 of an H200 holds 60 MB. Row by row, the tiles in flight read more than that from all their steps along $K$; in
# groups, much less. In elements, 16 rows of 128 by 8 columns of 256 are a square. Over the whole product, wave after
# wave of 132 tiles on as many multiprocessors, and for two sizes of $C$:

# %% jupyter={"source_hidden": true}
groups = [1, 2, 4, 8, 16, 32]
total = {}
for N in (4096, 8192):
    orders = {group: walk(4096 // 128, N // 256, group) for group in groups}
    total[N] = [
        sum(bytes_of(order[i : i + 132], 4096) for i in range(0, len(order), 132)) / 1e6 for order in orders.values()
    ]
figure = go.Figure(
    [go.Bar(name=f"C of 4096 x {N}", x=[str(group) for group in groups], y=values, texttemplate="%{y:.0f}",
            textposition="outside", cliponaxis=False, marker_color=color)
     for (N, values), color in zip(total.items(), ["#9ecae1", "#2171b5"])]
)
figure.update_layout(
    title="Distinct bytes of A and B, added up over waves of 132 tiles (modeled)", barmode="group",
    template="plotly_white", height=400, xaxis=dict(title="rows of tiles in a group", type="category"),
    yaxis=dict(title="MB"), legend=dict(orientation="h", y=-0.22),
)

# %% [markdown]
# This model takes every wave for itself: it forgets all that the L2 still holds from the wave before, and lets all
# blocks of a wave go in step. So it is a rule for choosing, and no measurement. It says two things. The order matters
# most where $C$ is wide; and where $C$ has 16 columns of tiles only, a plain row order is nearly as good, for 132 tiles
# in flight are 8 whole rows of them in any case.
#
# `mma_tuned` walks in groups of 8 rows. It also **stays**: it launches as many blocks as there are multiprocessors,
# and each goes on to its next tile without a pause, its copies already under way while it stores the last one.
#
# And it **mixes**. mma_async starts a whole step's copies at once, behind a branch that asks whether any are left. The
# compiler moves no multiplication over that branch, so while a warp works out all those addresses, it gives its tensor
# core nothing to do. Here a third of the copies goes with each 16 of $k$ but the last, and no branch is in their way:
# what lies outside, or after the last tile, is filled up with zeros. Then a copy may stand between any two
# multiplications.
#
# ### Optional: write it in CUDA C++
#
# The order is in `corner`. The rest is mma_async, in one stream of steps over all of a block's tiles. A warp's products
# have an order too: go through the columns of its tile forth and back, so that two multiplications in a row always
# share a fragment.

# %% kernel="gemm_f16/mma_tuned" language="cuda"

# %% check="gemm_f16/mma_tuned" language="cuda"
mma_tuned = gemm_f16["mma_tuned", "cuda"]
mma_tuned.check()

# %% solved_only=true
assert bytes_of(in_flight[1], K) == predicted_rows.value and bytes_of(in_flight[8], K) == predicted_grouped.value
assert bytes_of(in_flight[16], K) < bytes_of(in_flight[8], K) < 60e6 < bytes_of(in_flight[1], K)
assert min(total[8192]) == total[8192][groups.index(16)] and max(total[8192]) < 2 * total[8192][0]
assert total[8192][groups.index(8)] < 0.7 * total[8192][0]
assert 0.85 < total[4096][0] / min(total[4096][groups.index(8)], total[4096][0]) < 1.2
assert max(total[4096]) / min(total[4096]) < max(total[8192]) / min(total[8192])
# The kernel's own order: let it write the number of the tile instead of the sums.
import torch

from labkit.kernels import gpu

device = "cuda" if gpu.available() else "cpu"
number = "corner(tile, row, col);"
assert mma_tuned.source.count(number) == 1
file = folder / "mma_tuned.cu"
file.write_text(mma_tuned.source.replace(
    number, number + " for (auto &r : c) for (auto &s : r) for (float &x : s) x = tile;"))
C = torch.empty(18 * 128, 3 * 256, device=device)
A, B = torch.zeros(18 * 128, 8, device=device).half(), torch.zeros(8, 3 * 256, device=device).half()
mma_tuned.load(file).kernel.launch(C, A, B)
written = {int(C[row * 128, column * 256]): (row, column) for row in range(18) for column in range(3)}
assert [written[n] for n in range(54)] == walk(18, 3, 8)

# %% [markdown]
# ### What the order is worth on an H200
#
# `labkit sweep` compiles a kernel with other values for a constant of its file, and times and counts each: here with
# others for `GROUP`, for both sizes of $C$. Before you look: by how much will the best order be faster than the worst?

# %%
from labkit import sweep

tuned = lk.problem("gemm_bf16")["mma_tuned", "cuda"]
measured = {N: sweep.find_recorded(tuned, ["GROUP"], M=4096, N=N, K=4096) for N in (4096, 8192)}
measured[8192].table

# %% jupyter={"source_hidden": true}
hits = {N: [row["metrics"]["lts__t_sector_hit_rate.pct"] for row in found.rows] for N, found in measured.items()}
from_dram = {N: [row["metrics"]["dram__bytes_read.sum"] for row in found.rows] for N, found in measured.items()}
times = {N: [row["timing"].median_ms for row in found.rows] for N, found in measured.items()}
figure = make_subplots(1, 3, horizontal_spacing=0.09, subplot_titles=["L2 hit rate", "read from DRAM", "time"])
for N, color in ((4096, "#9ecae1"), (8192, "#2171b5")):
    for column, values in enumerate((hits[N], [b / 1e6 for b in from_dram[N]], times[N]), 1):
        figure.add_scatter(x=[str(group) for group in groups], y=values, name=f"C of 4096 x {N}", row=1, col=column,
                           mode="lines+markers", line_color=color, showlegend=column == 1)
for column, title in enumerate(("%", "MB", "ms"), 1):
    figure.update_yaxes(title=title, rangemode="tozero", row=1, col=column)
figure.update_xaxes(title="rows of tiles in a group", type="category")
figure.update_layout(title=f"mma_tuned in bfloat16: {measured[8192].origin}", template="plotly_white", height=380,
                     legend=dict(orientation="h", y=-0.25))

# %% [markdown]
# For the wide $C$, the L2 does what the model said: with groups of 16 rows it serves more of what it is asked for, and
# DRAM delivers about half. For the square $C$ all orders are near each other, as they were in the model.
#
# **The time hardly moves.** All those bytes are far from what this DRAM can deliver in that time, and the copies are
# started three steps ahead, so that a longer wait is hidden too. What binds is the tensor pipe. A better order relieves
# a level of memory, and that shows in the time only where this level was short. It would be on a GPU whose DRAM is
# slower for its tensor cores, and it is with a kernel that gets more out of them.

# %%
for N, found in measured.items():
    reading = [b / ms / 1e6 for b, ms in zip(from_dram[N], times[N])]
    ceiling = found.rows[0]["timing"].ceilings["read_gbps"]
    print(f"C of 4096 x {N}: {min(reading):.0f} to {max(reading):.0f} GB/s from DRAM, of {ceiling:.0f}; "
          f"the slowest order takes {max(times[N]) / min(times[N]) - 1:.1%} longer than the fastest")

# %% solved_only=true
at = groups.index
assert from_dram[8192][at(16)] == min(from_dram[8192]) < 0.65 * from_dram[8192][at(1)]
assert from_dram[8192][at(8)] < 0.8 * from_dram[8192][at(1)]
assert hits[8192][at(16)] == max(hits[8192]) > hits[8192][at(1)] + 8
assert max(from_dram[4096]) / min(from_dram[4096]) < 1.4 < max(from_dram[8192]) / min(from_dram[8192])
assert all(max(times[N]) / min(times[N]) < 1.05 for N in times)
assert all(b / ms / 1e6 < 0.4 * ceiling for N in times for b, ms in zip(from_dram[N], times[N]))

# %% [markdown]
# ### Explain
#
# The tile of a block should be nearly square, and so should the piece of $C$ that all tiles in flight make up together.
# Which traffic, between which levels of memory, does each of the two spare?

# %% [markdown] explain="gemm_f16/mma_tuned" points=2
# ### BEGIN SOLUTION
# Half the circumference of a block's own tile says how many elements the block fetches for each k, and that is traffic
# between the L2 and the multiprocessors. Half the circumference of all tiles in flight together says how many distinct
# elements they need, and that is traffic between DRAM and the L2. Each level has its own piece of C, and the rule of
# circumference and area holds for each.
# ### END SOLUTION

# %% [markdown]
# ## How exact is it?
#
# Two things are rounded. The **inputs**: `float16` keeps 11 significant bits, and numbers up to 65504; `bfloat16` keeps
# 8 of them, and reaches as far as `float32`. And the **sums**, in `float32`, but in the tensor core's own way.

# %% question="gemm_f16/precision/exact_integers" points=1
lk.answer("gemm_f16/precision/exact_integers", 256)

# %%
import torch

from labkit.kernels import gpu

device = "cuda" if gpu.available() else "cpu"
for value in (257.0, 2049.0, 70000.0, 1e-6):
    number = torch.tensor(value)
    print(f"{value:>9g}: float16 {number.half().item():<10.6g} bfloat16 {number.bfloat16().item():.6g}")

# %% [markdown]
# Overflow or coarse steps: that is the choice. A product of two `float16` is exact in `float32`, and so is one of two
# `bfloat16`: 22 and 16 significant bits, of 24. So all that a kernel itself adds to the error is in its sums.
#
# Here are sums of $K$ products of positive numbers, on the tensor cores, by the kernel `wmma`. Each result is compared
# in `float64` twice: with the product of the numbers before rounding, and with that of the numbers that the kernel got.

# %%
gemm_bf16 = lk.problem("gemm_bf16")  # the same kernels, compiled for bfloat16
kernels = {torch.float16: wmma.kernel, torch.bfloat16: gemm_bf16["wmma", "cuda"].kernel}
lengths = [2**n for n in range(4, 13, 2)]
errors = {}


def relative(C, exact):
    """Root of the mean square of the relative error."""
    return float(((C.double() / exact - 1) ** 2).mean().sqrt())


for K in lengths:
    generator = torch.Generator().manual_seed(K)
    A, B = torch.rand(16, K, generator=generator).to(device), torch.rand(K, 16, generator=generator).to(device)
    for dtype, kernel in kernels.items():
        C, a, b = torch.empty(16, 16, device=device), A.to(dtype), B.to(dtype)
        kernel.launch(C, a, b)
        rounded = a.double() @ b.double()
        errors[dtype, K] = relative(C, A.double() @ B.double()), relative(C, rounded), int((C > rounded).sum())
    half, single = torch.zeros(16, 16, device=device).half(), torch.zeros(16, 16, device=device)
    for k in range(K):  # sums in float16 and in float32, one after the other
        term = A[:, k : k + 1].half().float() * B[k : k + 1].half().float()
        half, single = (half.float() + term).half(), single + term
    exact = A.half().double() @ B.half().double()
    errors["float16 sums", K], errors["float32 sums", K] = relative(half, exact), relative(single, exact)

# %% jupyter={"source_hidden": true}
lines = {
    "sums in float16": ([errors["float16 sums", K] for K in lengths], "#d93025", "dot"),
    "bfloat16, in all": ([errors[torch.bfloat16, K][0] for K in lengths], "#e6550d", "solid"),
    "float16, in all": ([errors[torch.float16, K][0] for K in lengths], "#2171b5", "solid"),
    "float16, its sums on tensor cores": ([errors[torch.float16, K][1] for K in lengths], "#2171b5", "dash"),
    "float16, sums by ordinary float32 additions": ([errors["float32 sums", K] for K in lengths], "#80868b", "dash"),
}
figure = go.Figure(
    [go.Scatter(x=lengths, y=values, name=name, mode="lines+markers", line=dict(color=color, dash=dash))
     for name, (values, color, dash) in lines.items()]
)
figure.update_layout(
    title="Relative error of sums of K positive products", template="plotly_white", height=480,
    xaxis=dict(title="K", type="log", tickvals=lengths, ticktext=[f"{K:,}" for K in lengths]),
    yaxis=dict(title="relative error", type="log", dtick=1, exponentformat="power"),
    legend=dict(orientation="h", y=-0.2),
)

# %% [markdown]
# Read it from top to bottom. Sums in `float16` are hopeless: at some size, the next product is too small to change
# them. So every tensor core sums in `float32` if asked to. Rounding the inputs costs most of the error in the middle,
# and 8 times as much in `bfloat16`, three bits fewer; but those errors go up and down, and the longer the sum, the more
# of them cancel.
#
# The dashed blue line does *not* cancel. The sums of the tensor cores grow worse with $K$ much faster than those of
# ordinary additions do. And the number of results that came out too large, of 256, is

# %%
for K in lengths:
    print(f"K = {K:4}: {errors[torch.float16, K][2]} in float16, {errors[torch.bfloat16, K][2]} in bfloat16")

# %% [markdown]
# None. Tensor cores of an H200 do not round, they **cut off**: every step makes a positive sum a little smaller and
# never larger, so the errors add up, where those of honest rounding wander about. (The emulator computes what an H200
# computes, to the last bit, on all cases that were recorded there. Other GPUs may cut off elsewhere; NVIDIA promises
# none of it.) With numbers of both signs it is hardly ever noticed. `check()` allows for it.
#
# Your own kernel, mma_sync, with 1024 of these products:

# %%
A, B, C = A[:, :1024].half(), B[:1024].half(), torch.empty(16, 16, device=device)
mma_sync.kernel.launch(C, A.contiguous(), B.contiguous())
own = relative(C, A.double() @ B.double())
print(f"mma_sync: {own:.1e}; wmma, with other numbers: {errors[torch.float16, 1024][1]:.1e}")

# %% solved_only=true
last = lengths[-1]
assert torch.tensor(257.0).bfloat16() == 256 and torch.tensor(2049.0).half() == 2048
assert torch.isinf(torch.tensor(70000.0).half()) and torch.isfinite(torch.tensor(70000.0).bfloat16())
assert errors["float16 sums", last] > 0.05 > 100 * errors[torch.bfloat16, last][0]
assert all(6 < errors[torch.bfloat16, K][0] / errors[torch.float16, K][0] < 10 for K in lengths[:3])
assert errors[torch.bfloat16, last][0] < errors[torch.bfloat16, lengths[0]][0] / 4
assert all(errors[dtype, K][2] == 0 for dtype in kernels for K in lengths[1:])
assert errors[torch.float16, last][1] > 10 * errors["float32 sums", last]
growth = [errors[torch.float16, b][1] / errors[torch.float16, a][1] for a, b in zip(lengths[1:], lengths[2:])]
assert min(growth) > 3  # in proportion to K, which grows fourfold; a random walk would give 2
assert 0.5 < own / errors[torch.float16, 1024][1] < 2

# %% [markdown]
# ### Explain
#
# A network was trained in `float32`. Its activations reach 100,000 here and there. Would you run it in `float16` or in
# `bfloat16`, and what do you pay?

# %% [markdown] explain="gemm_f16/precision" points=1
# ### BEGIN SOLUTION
# In bfloat16: 100,000 is infinity in float16, and one infinity spoils every sum that it enters. The price is a
# rounding error of each input that is 8 times as large. (Or in float16 with the activations scaled down, if one knows
# by how much.)
# ### END SOLUTION

# %% [markdown]
# ## On an H200
#
# The counts say what each step spares. What does a clock say? Our solutions, recorded at $M = N = K = 4096$ in
# `float16`. PyTorch's line is cuBLAS.

# %%
import pandas as pd

RUNGS = ["wmma", "wmma_tiled", "mma_sync", "mma_async", "mma_tuned"]
timed = {(p.name, rung): p[rung, "cuda"].time(recorded=True) for p in (gemm_f16, gemm_bf16) for rung in RUNGS}
in_numba = {rung: gemm_f16[rung, "numba"].time(recorded=True) for rung in ("mma_sync", "mma_async")}
lk.plots.ladder([timed["gemm_f16", rung] for rung in RUNGS] + list(in_numba.values()))

# %% [markdown]
# In both types, in CUDA C++, and what each step is worth: times as fast as the one before.

# %%
rate = pd.DataFrame({p.math: {rung: timed[p.name, rung].tflops for rung in RUNGS} for p in (gemm_f16, gemm_bf16)})
step = rate / rate.shift(1)
torchs = {p.math: timed[p.name, "mma_tuned"].tflops / timed[p.name, "mma_tuned"].ratio for p in (gemm_f16, gemm_bf16)}
of_torch = rate / pd.Series(torchs)
newest = timed["gemm_bf16", "mma_tuned"]
pd.concat({"TFLOP/s": rate, "step": step, "of PyTorch, %": 100 * of_torch}, axis=1).style.format(
    precision=0, na_rep=""
).format(precision=2, na_rep="", subset=["step"]).set_caption(f"{newest.machine}, recorded {newest.date}")

# %% [markdown]
# Two steps are large, one is small, and one even takes something away in one of the types. Nsight Compute read the
# counters of the same products. Here they are for each m16n8k16, in `float16`, with one column in `bfloat16`:

# %% jupyter={"source_hidden": true}
from labkit.profiling.metrics import STALL_REASONS

BF16 = "sm__ops_path_tensor_src_bf16_dst_fp32.sum"
STORE_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum"
ISSUE = "smsp__issue_active.avg.pct_of_peak_sustained_active"
ALU = "sm__inst_executed_pipe_alu.avg.pct_of_peak_sustained_active"
RESIDENT = "sm__warps_active.avg.pct_of_peak_sustained_active"
FROM_L2, FROM_DRAM, TIME = "lts__t_sectors_srcunit_tex.sum", "dram__bytes_read.sum", "gpu__time_duration.sum"
STALLED = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"

read = {rung: gemm_f16[rung, "cuda"].recorded() for rung in RUNGS}
read["wmma_tiled, bf16"] = gemm_bf16["wmma_tiled", "cuda"].recorded()
read |= {f"{rung}, numba": gemm_f16[rung, "numba"].recorded() for rung in in_numba}


def products(p):
    """How many m16n8k16."""
    return (p[OPERATIONS] + p[BF16]) / 4096


def cycles(p):
    """Cycles of a multiprocessor from one m16n8k16 to the next: its 4 schedulers issue INSTRUCTIONS."""
    return p[INSTRUCTIONS] / (4 * p[ISSUE] / 100) / products(p)


def summary(p):
    return {
        "cycles of a multiprocessor": cycles(p),
        "tensor cores' peak reached, %": 100 * 2048 / PER_CYCLE / cycles(p),
        "instructions": p[INSTRUCTIONS] / products(p),
        "sectors of global loads": p[SECTORS] / products(p),
        "wavefronts of shared loads": p[SHARED] / products(p),
        "wavefronts of shared stores": p[SHARED_STORES] / products(p),
        "bank conflicts among them all": (p[CONFLICTS] + p[STORE_CONFLICTS]) / products(p),
        "in all: read from L2, GB": 32 * p[FROM_L2] / 1e9,
        "read from DRAM, GB": p[FROM_DRAM] / 1e9,
        "registers of a thread": p[REGISTERS],
        "resident warps, % of those that fit": p[RESIDENT],
        "issue slots used, %": p[ISSUE],
        "pipe of whole numbers and logic used, %": p[ALU],
    }


counted = pd.DataFrame({name: summary(p) for name, p in read.items()})
counted.style.format(lambda value: f"{value:.3g}" if value >= 0.005 else "0").set_caption(
    f"for each m16n8k16; read by Nsight Compute on the {newest.machine}"
)

# %% [markdown]
# And what warps wait for, in % of their time. (In `selected` they issue.)

# %% jupyter={"source_hidden": true}
waits = pd.DataFrame(
    {name: {"selected": 1.0} | {reason: p[STALLED.format(reason)] for reason in STALL_REASONS}
     for name, p in read.items()}
)
waits = 100 * waits / waits.sum()
waits.insert(0, "what it is", [STALL_REASONS.get(reason, "nothing") for reason in waits.index])
waits[waits.iloc[:, 1:].max(axis=1) >= 3].style.format(precision=0)

# %% [markdown]
# * **wmma** waits for its loads, and they for each other. A load touches 8 rows, each in a line of its own: 32 lines
#   for a multiplication. The L1 gets through about one a cycle, and did so with the scattered loads of `naive`, in the
#   first notebook, too. That makes 32 cycles, for an instruction that takes the 4 tensor cores one.
# * **wmma_tiled** asks for a sixteenth of the sectors, and is not 16 times as fast: now a warp waits first for global
#   memory (`long_scoreboard`), then for fragments (`short_scoreboard`), then for the others (`barrier`). A block does
#   these one after the other, and two blocks, all that the registers allow, do not fill each other's gaps.
# * **mma_sync** is not worth what the textbook says. The padding had left next to no conflicts of loads to remove;
#   those of stores, a third of their wavefronts, do go away, but hardly anybody waited for them; and what warps do wait
#   for stays as it was. In `float16` it is even a little slower. And in `bfloat16`? See what the compiler made of the
#   same wmma:

# %%
from collections import Counter

from labkit.emulator.sass import machine_code
from labkit.kernels.cuda import compile_ptx

made = {}
for kind, defines in (("float16", ()), ("bfloat16", ("BF16",))):
    code = machine_code(compile_ptx(wmma_tiled.source, defines=defines), "gemm_f16_wmma_tiled").code
    counts = Counter(i.op.split(".")[0] for i in code)
    made[kind] = {op: counts[op] for op in ("HMMA", "LDSM", "LD", "MOVM")}
    print(f"wmma_tiled, {kind:9} {made[kind]}")

# %% [markdown]
# `HMMA` multiplies, and `LDSM` is ldmatrix. In `float16`, wmma had become ldmatrix and mma by itself. In `bfloat16`
# this compiler loads one register at a time (`LD`), and takes another instruction to turn matrices round (`MOVM`): half
# as many instructions again, and queues to memory that fill up (`mio_throttle`, `lg_throttle`). With mma_sync you are
# not at the compiler's mercy: both types get the same instructions and the same speed. And the next step needs it.
#
# * **mma_async** is that step. Copies run ahead, and warps wait less for global memory; fragments are loaded ahead, and
#   `short_scoreboard` is gone; with 64 x 64 for a warp, a multiplication takes two thirds of the wavefronts and less
#   than half of the instructions. All this with half the warps, an eighth of those that fit: occupancy hides waiting,
#   and there is little left to hide.
# * **mma_tuned** adds a few per cent, with a seventh fewer instructions and less waiting for global memory. Its order
#   of tiles gains nothing here: DRAM had only an eighth of its rate to deliver, and at this width of $C$ the plain
#   order was nearly as good in the model, too. Staying spares the pauses between tiles, but no round: 132
#   multiprocessors take 4 for 512 tiles in any case.
#
# What is left? Warps wait for the pipe (`math_pipe_throttle`) and for the fixed time after an instruction (`wait`), and
# no memory is near its limit. The tensor cores reach half of their peak. Microbenchmarks of Hopper found that `mma`
# does not reach more than about 63% (Luo et al., arXiv:2402.13499); `wgmma` does, and cuBLAS uses it. So most of
# PyTorch's lead is one instruction.
#
# ### The same in numba
#
# mma_sync in numba reads the same wavefronts, and is an order of magnitude behind C++. A thread copies 32 elements for
# each 32 of $k$. In C++ these are 4 loads of 16 bytes, started two at a time. In numba they are 32 loads of 2 bytes,
# and each is stored before the next one starts. How long does a warp wait for them?

# %%
from labkit.models import latency

trip = {}
for name, trips in (("mma_sync", 2), ("mma_sync, numba", 32)):
    p = read[name]
    loads = 32 * p[REQUESTS] / products(p)  # of a warp for 32 of k, which are 32 multiplications
    waited = 32 * p[STALLED.format("long_scoreboard")] * p[INSTRUCTIONS] / products(p)
    trip[name] = loads, waited, trips
    each = f"{waited / trips:.0f} for each of {trips} trips"
    print(f"{name:15} {loads:2.0f} loads: a warp waits {waited:6,.0f} cycles, {each}")
alone = latency.find_recorded("NVIDIA H200")
print(f"one load alone: {alone.l2_hit.median_cycles:.0f} cycles from the L2, {alone.dram.median_cycles:.0f} from DRAM")

# %% [markdown]
# A trip takes what a load takes, in both languages; numba makes 16 times as many. Besides, its 148 registers are too
# many for a second block, so that only half as many warps can wait at the same time.
#
# mma_async in numba has 16 bytes in a load, and hardly waits for one. It is ten times as fast. Its limit is another:
# nine times as many instructions as in C++, which fill the pipe of whole numbers. They work out addresses, in 64 bits
# and for every piece again, where C++ has done so once, before the loop.

# %% solved_only=true
named = counted.set_axis(["cycles", "peak", "instructions", "sectors", "loads", "stores", "conflicts", "l2", "dram",
                          "registers", "resident", "issue", "alu"])  # fmt: skip
wmma_row, tiled, sync, ahead, tuned, tiled_bf16, sync_numba, async_numba = (named[name] for name in read)
stalls = waits.drop(columns="what it is")
assert {t.machine for t in (*timed.values(), *in_numba.values())} == {"NVIDIA H200"}
assert all(p[OPERATIONS] + p[BF16] == 2 * 4096**3 for p in read.values())
assert (step.loc["wmma_tiled"] > 4.5).all() and (step.loc["mma_async"] > 2.5).all()
assert 0.88 < step.loc["mma_sync", "float16"] < 1 < step.loc["mma_sync", "bfloat16"] < 1.15
assert step.loc["mma_tuned"].between(1.005, 1.06).all() and of_torch.loc["mma_tuned"].between(0.58, 0.68).all()
# wmma: a line of the L1 takes little more than a cycle, as in the first notebook's naive.
assert wmma_row.sectors == 32 < wmma_row.cycles < 38 and stalls.loc["long_scoreboard", "wmma"] > 75
plain = lk.problem("gemm")["naive", "cuda"].recorded()
assert abs(plain[SECTORS] * 4 * plain[ISSUE] / 100 / plain[INSTRUCTIONS] - 32 / wmma_row.cycles) < 0.15
# wmma_tiled and mma_sync wait for the same.
assert wmma_row.sectors == 16 * tiled.sectors == 16 * sync.sectors
waiting = ["long_scoreboard", "short_scoreboard", "barrier"]
for name in ("wmma_tiled", "mma_sync"):
    assert list(stalls[name].drop(["wait", "selected"]).nlargest(3).index) == waiting
    assert stalls.loc[waiting, name].sum() > 55 and named[name].registers <= 128 and 23 < named[name].resident < 26
assert read["wmma_tiled"][CONFLICTS] < 0.01 * read["wmma_tiled"][SHARED]
assert abs(read["wmma_tiled"][STORE_CONFLICTS] / read["wmma_tiled"][SHARED_STORES] - 1 / 3) < 0.05
assert read["mma_sync"][STORE_CONFLICTS] < 0.05 * read["mma_sync"][SHARED_STORES]
assert abs(tiled.loads / sync.loads - 1) < 0.03 and abs(tiled.instructions / sync.instructions - 1) < 0.1
assert 1.4 < tiled_bf16.instructions / tiled.instructions < 1.6
queues = stalls.loc[["mio_throttle", "lg_throttle"]].sum()
assert queues["wmma_tiled, bf16"] > 2.5 * queues["wmma_tiled"] and queues["mma_sync"] < 0.5 < queues["wmma_tiled"] < 5
assert made["float16"]["LDSM"] > 0 == made["float16"]["LD"] + made["float16"]["MOVM"]
assert made["bfloat16"]["LDSM"] == 0 < min(made["bfloat16"]["LD"], made["bfloat16"]["MOVM"])
for rung in ("mma_sync", "mma_async", "mma_tuned"):
    assert gemm_bf16[rung, "cuda"].recorded()[INSTRUCTIONS] == read[rung][INSTRUCTIONS]
    assert abs(rate.loc[rung, "bfloat16"] / rate.loc[rung, "float16"] - 1) < 0.03
# mma_async and mma_tuned.
assert stalls.loc["long_scoreboard", "mma_async"] < stalls.loc["long_scoreboard", "mma_sync"] / 2
assert stalls.loc["short_scoreboard", "mma_async"] < 1 and abs(ahead.loads / sync.loads - 2 / 3) < 0.02
assert ahead.instructions < sync.instructions / 2 and 12 < ahead.resident < min(13, 0.6 * sync.resident)
assert 0.82 < tuned.instructions / ahead.instructions < 0.9 and tuned.cycles < ahead.cycles
assert stalls.loc["long_scoreboard", "mma_tuned"] < 0.75 * stalls.loc["long_scoreboard", "mma_async"]
for name in ("mma_async", "mma_tuned"):
    assert 0.09 < read[name][FROM_DRAM] / read[name][TIME] / rates["read_gbps"] < 0.16
    assert 32 * read[name][FROM_L2] / read[name][TIME] < 0.65 * rates["l2_gbps"]
    assert named[name].loads / named[name].cycles < 0.6
    assert set(stalls[name].nlargest(2).index) == {"wait", "math_pipe_throttle"}
assert -(-512 // 132) == 4 and 45 < tuned.peak < 58
# numba
assert sync_numba.cycles > 10 * sync.cycles and abs(sync_numba.loads / sync.loads - 1) < 0.01
for name, (loads, waited, trips) in trip.items():
    assert loads == {"mma_sync": 4, "mma_sync, numba": 32}[name]
    assert 0.8 * alone.l2_hit.median_cycles < waited / trips < 1.2 * alone.dram.median_cycles
assert sync_numba.registers == 148 and sync_numba.resident < 0.6 * sync.resident
assert stalls["mma_sync, numba"].idxmax() == "long_scoreboard"
assert 8 < in_numba["mma_async"].tflops / in_numba["mma_sync"].tflops < 14
assert stalls.loc["long_scoreboard", "mma_async, numba"] < 3 and 8 < async_numba.instructions / ahead.instructions < 10
assert async_numba.alu > 60 > 3 * ahead.alu
# What is inlined stands in the kernel's first line.
first = next(n for n, line in enumerate(mma_async.source.splitlines(), 1) if line.startswith("def gemm_f16_mma_async"))
assert sum(line[INSTRUCTIONS] for line in p_async.line_counts if line["line"] == first) > 0.3 * p_async[INSTRUCTIONS]

# %% [markdown]
# ## Your page

# %% jupyter={"source_hidden": true}
import pandas as pd

page = pd.DataFrame(
    {
        "tensor operations": int(p[OPERATIONS]),
        "FLOP per byte, global": intensity(p),
        "global load requests": int(p[REQUESTS]),
        "elements from shared memory per multiply-add": reads(p),
        "instructions per m16n8k16": p[INSTRUCTIONS] / (p[OPERATIONS] / 4096),
        "barriers of a block": max(p.steps.phases),
        "registers per thread": int(p[REGISTERS]),
        "shared memory, bytes": int(p[SHARED_BYTES]),
    }
    for p in (p_wmma, p_tiled, p_sync, p_async)
)
page.index = ["wmma (C++)", "wmma_tiled (C++)", "mma_sync", "mma_async"]
page.T.style.format(precision=3, thousands=",").set_caption(
    f"M = N = {shape['M']}, K = {shape['K']} ({p_async.origin})"
).set_table_styles([{"selector": "td", "props": "text-align: right"}])

# %% [markdown]
# The arithmetic is the same in every column. What you have changed is how it is fed.
#
# Hopper has one generation more: `wgmma`, which reads its operands straight from shared memory, and a unit that
# copies whole tiles. They run on that one family of GPUs. What you have written here runs on all of them since 2020.

# %% solved_only=true
assert page["tensor operations"].nunique() == 1
assert page["FLOP per byte, global"].iloc[0] < page["FLOP per byte, global"].iloc[1]
