"""int4_gqa: attention of one query token per sequence over a KV cache in 4 bits with a single head, D = 128.

As gqa_bf16, but K and V are uint8 [B, T, 1, 68], rows of 128 numbers in 4 bits with one float16 scale and shift (row-
wise; `labkit.problems._kv_int4` has the layout byte by byte). int4_gqa_4group is the same with 4 scales and shifts a
row. `split_k` says into how many pieces a sequence's tokens are cut, for the blocks of a GPU to share.
"""

from __future__ import annotations

from labkit.problems import _kv_int4 as kv
from labkit.problems import gqa_bf16
from labkit.problems._metrics import INSTRUCTIONS, LOAD_CONFLICTS, SHARED_LOADS
from labkit.problems.problem import Problem, Question, Step, Tensor


def _dequantized(K, V, lengths, dtype=None):
    return (kv.inside(kv.dequantize(cache, dtype), lengths) for cache in (K, V))


def reference(Q, K, V, lengths, split_k=16):
    return kv.attend(Q, *_dequantized(K, V, lengths), lengths)


def magnitude(Q, K, V, lengths, split_k=16):
    return kv.magnitude(Q, *_dequantized(K, V, lengths), lengths)


def baseline(Q, K, V, lengths, split_k=16):
    """The cache in bfloat16, then PyTorch's scaled dot product attention."""
    import torch

    return kv.baseline(Q, *_dequantized(K, V, lengths, torch.bfloat16), lengths)


def banks(words: list[int]) -> int:
    """How many of the 32 banks 4-byte words fall into."""
    return len({word % 32 for word in words})


def passes(words: list[int]) -> int:
    """Wavefronts that lanes' 4-byte words take: the most distinct words in one bank."""
    distinct = [word % 32 for word in set(words)]
    return max(distinct.count(bank) for bank in distinct)


# The words of a warp's 32 lanes, lane 4 g + q.
LANES = [(lane // 4, lane % 4) for lane in range(32)]


def p_load(row: int) -> list[int]:
    """Where lanes find their first number of a fragment of P, if heads are `row` words apart."""
    return [row * g + 2 * q for g, q in LANES]


def k_store(row: int) -> list[int]:
    """Where lanes put the first pair of a token each, if tokens of a dequantized tile are `row` words apart."""
    return [row * lane for lane in range(32)]


def k_load(row: int) -> list[int]:
    """Where lanes find their first pair of a fragment of K."""
    return [row * g + q for g, q in LANES]


def effective_bytes(B: int, T: int, row: int) -> int:
    """Bytes that the document counts for its bandwidth: K, V, and Q and O of 8 heads in bfloat16."""
    return B * (2 * T * row + 2 * 8 * kv.D * 2)


def instruction_budget() -> float:
    """Instructions of a thread for each number of a row-wise cache, if an H200 reads at its measured ceiling."""
    from labkit.models import devices
    from labkit.models.roofline import roofs

    h200 = devices.find("NVIDIA H200")
    instructions = h200.sms * h200.limits.parts * h200.clock_mhz * 1e6 * 32
    return instructions / (roofs("NVIDIA H200").memory["DRAM"] * 1e9 / kv.row_bytes(1) * kv.D)


LADDER = (
    Step("cuda_core", "a warp per token, lanes share a row", "instructions per number"),
    Step("cu_baseline", "8 heads at once on tensor cores, 4 warps", "tensor operations; instructions",
         gates=(INSTRUCTIONS,)),
    Step("opt01_unroll_k", "8 words of K loaded before the first is used", "long scoreboard stalls at K"),
    Step("opt02_cast_p", "P to bfloat16 in place, two at a time", "shared wavefronts; barriers"),
    Step("opt03_max_registers", "a thread's maximum is of one head", "local loads and stores"),
    Step("opt04_sum_registers", "so is its sum", "local loads and stores"),
    Step("opt05_prefetch_v", "V's next words on their way during the product", "long scoreboard stalls at V"),
    Step("opt06_group_vector_loads", "8 bytes a load, if rows let it", "global load requests"),
    Step("opt07_max_from_fragment", "the maximum out of the fragments", "shared load wavefronts"),
    Step("opt08_p_into_fragment", "P rounded on its way into the fragment", "barriers; shared stores"),
    Step("opt09_swizzle_p", "P tile by tile in shared memory", "shared bank conflicts", gates=(LOAD_CONFLICTS,)),
    Step("opt10_pad_dequant", "rows of dequantized K and V padded", "shared bank conflicts", gates=(LOAD_CONFLICTS,)),
    Step("opt11_direct_mma", "packed words straight into mma's fragments; scales outside", "instructions per number",
         gates=(SHARED_LOADS,)),
)

problem = Problem(
    name="int4_gqa",
    lab="04_int4_gqa",
    formula="O[b,h] = softmax(Q[b,h] K[b]^T / sqrt(128)) V[b], K, V = q * scale + shift",
    dims=("B", "T", "HQ"),
    inputs={
        "Q": Tensor(("B", "HQ", kv.D), "bfloat16"),
        "K": Tensor(("B", "T", 1, kv.row_bytes(1)), "uint8", kv.random_cache),
        "V": Tensor(("B", "T", 1, kv.row_bytes(1)), "uint8", kv.random_cache),
        "lengths": Tensor(("B",), "int32", derive=lambda inputs: kv.random_lengths(inputs["K"])),
    },
    outputs={"O": Tensor(("B", "HQ", kv.D), "bfloat16")},
    reference=reference,
    baseline=baseline,
    magnitude=magnitude,
    flops=gqa_bf16.flops,
    math="bfloat16",
    options={"split_k": 16},
    ladder=LADDER,
    shapes=gqa_bf16.SHAPES,
    large_shapes=gqa_bf16.LARGE,
    profile_shape=gqa_bf16.problem.profile_shape,
    odd_shape=gqa_bf16.problem.odd_shape,
    bench_shape=gqa_bf16.problem.bench_shape,
    questions={
        "intensity": Question(
            "The document counts 64 bytes a row. How many FLOP per byte of K and V does 8-head attention then do?",
            lambda: gqa_bf16.intensity(64),
            "FLOP/byte",
            "Four times what it is in bfloat16.",
        ),
        "intensity_row_wise": Question(
            "And with the scale and shift that a row begins with, 68 bytes?",
            lambda: gqa_bf16.intensity(kv.row_bytes(1)),
            "FLOP/byte",
            "16 FLOP for each of 128 numbers, over 68 bytes.",
        ),
        "ceiling": Question(
            "If reading the cache is all that takes time, how many times faster than bfloat16 is the row-wise cache?",
            lambda: 2 * kv.D / kv.row_bytes(1),
            "times",
            "256 bytes a row against 68: not quite 4.",
        ),
        "ridge": Question(
            "An A100 does 312 TFLOP/s in bfloat16 and reads 2 TB/s. At how many FLOP per byte do both take as long?",
            lambda: 312 / 2,
            "FLOP/byte",
            "Not 141.",
        ),
        "unit": Question(
            "How many bytes must a TB have for the document's two ridges, 141 and 269, to come out?",
            lambda: 2**40,
            "bytes",
            "That is a TiB, 1.0995 TB. Bandwidths are given in TB, of 10^12 bytes, and so are rates of arithmetic.",
        ),
        "instruction_budget": Question(
            "An H200 begins 132 x 4 warp instructions per clock, at 1.98 GHz, and reads a row-wise cache at its "
            "measured ceiling. How many instructions of one thread may each number of K or V take?",
            instruction_budget,
            "instructions",
            "32 threads an instruction, over the numbers that come in a second, 128 in 68 bytes. For everything: "
            "loading, unpacking, multiplying and the softmax.",
        ),
        "quantization/scale": Question(
            "The least number of a row is -3, the greatest 4.5. What is its scale, row-wise?",
            lambda: 7.5 / kv.SHARED_BY,
            "",
            "15 steps lie between 16 values.",
        ),
        "quantization/byte": Question(
            "Numbers 6 and 7 of that row are 0.5 and -2. Which value, 0 to 255, has the byte with both?",
            lambda: round(3.5 / 0.5) + 16 * round(1 / 0.5),
            "",
            "Number 6 has 7 steps above the shift, in the low four bits; number 7 has 2, in the high four.",
        ),
        "quantization/half_step": Question(
            "Of 128 numbers, 127 lie between -3 and 3, and one is 60. How far off can a number be at most, row-wise?",
            lambda: 63 / kv.SHARED_BY / 2,
            "",
            "Half of a scale that one number decides. Most of the others become 0 or 1.",
        ),
        "quantization/magic": Question(
            "Which number is the bfloat16 with the bits 0x4309?",
            lambda: 128 + 9,
            "",
            "0x4300 is 128, and from 128 to 255 a bfloat16 can say whole numbers only: its last bit is worth 1.",
        ),
        "cuda_core/reads": Question(
            "Each of the 8 heads has blocks of its own. How often does the kernel cuda_core ask for each byte of the "
            "cache, over all blocks?",
            lambda: 8,
            "times",
            "K and V do not depend on the head, and still every head's blocks read and unpack them.",
        ),
        "cu_baseline/local_bytes": Question(
            "A thread keeps a float for each of 8 heads in an array that a variable indexes. How many bytes of local "
            "memory is that?",
            lambda: 8 * 4,
            "bytes",
            "The compiler's report calls it the stack frame. The array of the sums takes the same place.",
        ),
        "cu_baseline/local_loads": Question(
            "A thread looks for 8 maxima among 256 tokens, 2 of them its own; then shuffles put the lanes' maxima "
            "together. Each step reads the array and writes it. How many local loads does a warp do for the maxima?",
            lambda: 8 * 256 // 128 + 8,
            "loads",
            "8 heads for each of 2 tokens, and once more for each head before the shuffles; it is in a register then.",
        ),
        "cu_baseline/k_store_banks": Question(
            "A tile of K has 32 tokens of 16 bfloat16. Each lane writes a word of its own token's row. How many of the "
            "32 banks do the 32 words fall into?",
            lambda: banks(k_store(8)),
            "banks",
            "Rows are 8 words apart: 0, 8, 16, 24, and 0 again. 8 wavefronts in place of 1.",
        ),
        "cu_baseline/k_load_banks": Question(
            "Then lane 4 g + q reads the word q of token g. How many banks?",
            lambda: banks(k_load(8)),
            "banks",
            "Words 8 g to 8 g + 3: of each 8 banks, 4.",
        ),
        "opt01_unroll_k/bytes_in_flight": Question(
            "A lane asks for 8 words of K before it uses the first. How many bytes of nibbles has a warp on their way?",
            lambda: 8 * 4 * 32,
            "bytes",
            "Before, it was a quarter of that.",
        ),
        "opt02_cast_p/barriers": Question(
            "128 threads read 4 pairs of P each, wait at a barrier, and write them. A block has 512 tokens of 8 heads, "
            "and goes head by head. How many such barriers does it come to?",
            lambda: 8 * -(-512 // (2 * 128 * 4)),
            "barriers",
            "One pass has room for 1024 tokens: one barrier a head.",
        ),
        "opt02_cast_p/shared_bytes": Question(
            "P needs no room of its own any more. How many bytes of shared memory does a block with 512 tokens save?",
            lambda: 8 * 512 * 2,
            "bytes",
            "8 heads, 512 tokens, 2 bytes a bfloat16.",
        ),
        "opt05_prefetch_v/requests": Question(
            "The loads of V stand elsewhere now. By how many do the requests for global memory change?",
            lambda: 0,
            "requests",
            "The same loads, earlier. No counter of work can see it, only a clock and the stall reasons.",
        ),
        "opt06_group_vector_loads/aligned_rows": Question(
            "Rows of 68 bytes follow each other from a multiple of 8 on. Of 8 of them, how many have their 64 bytes of "
            "nibbles on a multiple of 8?",
            lambda: sum((68 * row + 4) % 8 == 0 for row in range(8)),
            "rows",
            "4, 72, 140, ...: every other one, and a load of 8 bytes needs all.",
        ),
        "opt07_max_from_fragment/scores": Question(
            "A fragment of scores is 8 heads by 32 tokens. How many of them does each lane of the warp hold?",
            lambda: 8 * 32 / 32,
            "scores",
            "256 in 32 lanes.",
        ),
        "opt07_max_from_fragment/wavefronts": Question(
            "Without it, the maxima are looked for in shared memory: 8 heads of 256 tokens, 32 numbers side by side at "
            "a time. How many wavefronts of loads is that for a block?",
            lambda: 8 * 256 / 32,
            "wavefronts",
            "Each number once, 32 in a wavefront.",
        ),
        "opt08_p_into_fragment/p_load_banks": Question(
            "Heads of S are 256 floats apart. Lane 4 g + q reads token 2 q of head g. How many banks?",
            lambda: banks(p_load(256)),
            "banks",
            "256 is a multiple of 32: all heads meet in banks 0, 2, 4 and 6.",
        ),
        "opt09_swizzle_p/p_load_banks": Question(
            "With heads 16 floats apart, a lane reads tokens 2 q and 2 q + 1 in one load of 8 bytes, and half a warp "
            "(g = 0 to 3) goes at a time. How many banks does that half find?",
            lambda: banks([word + e for word in p_load(16)[:16] for e in (0, 1)]),
            "banks",
            "Heads 0 and 2 meet, and heads 1 and 3: 8 words of each pair's two rows in the same banks.",
        ),
        "opt10_pad_dequant/k_store_banks": Question(
            "Rows of K are padded by 2 bfloat16. How many banks do the 32 words of a store fall into now?",
            lambda: banks(k_store(9)),
            "banks",
            "9 and 32 have no common divisor.",
        ),
        "opt10_pad_dequant/k_load_banks": Question(
            "And the words of a load?",
            lambda: banks(k_load(9)),
            "banks",
            "9 g + q: token 7 begins at 63, in bank 31, and goes on in 0, 1, 2, which token 0 has too.",
        ),
        "opt11_direct_mma/numbers_per_lop3": Question(
            "LOP3 masks two nibbles of a word out and sets the bits of 128 around them. How many numbers in 4 bits "
            "become operands with one such instruction?",
            lambda: 32 / 16,
            "numbers",
            "One in each half of the word: two bfloat16.",
        ),
        "opt11_direct_mma/multiplications_per_tile": Question(
            "A tile is 32 tokens of K and of V. How many m16n8k16 does a warp do for it, without those that sum p' up?",
            lambda: 2 * 32 * kv.D / (16 * 16),
            "instructions",
            "Each takes 16 x 16 numbers of the cache; 8 heads are its columns.",
        ),
    },
)
