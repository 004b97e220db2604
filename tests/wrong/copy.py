"""Wrong kernels of copy."""

from wrong import Wrong

WRONG = [
    Wrong(
        "chunk too short",
        "chunked",
        ("min(first + CHUNK, B.shape[0])", "min(first + CHUNK - 1, B.shape[0])"),
        ("i < first + CHUNK &&", "i < first + CHUNK - 1 &&"),
        "unwritten",
        r"B\[31\] was never written",
    ),
    Wrong(
        "offset times stride",
        "coalesced",
        ("        B[i] = A[offset + stride * i]", "        B[i] = A[stride * (offset + i)]"),
        ("= A[offset + stride * i];", "= A[stride * (offset + i)];"),
        "value|out_of_bounds",
        r"B\[0\] got|A\[",
    ),
    Wrong(
        "no bound",
        "coalesced",
        ("if i < B.shape[0]:", "if True:"),
        ("if (i < N)\n", ""),
        "out_of_bounds",
        r"[AB]\[1000\]",
    ),
    Wrong(
        "offset forgotten in 16-byte loads",
        "vectorized",
        ("lk.cuda.load4(A, offset + i)", "lk.cuda.load4(A, i)"),
        ("(const float4 *)(A + offset + i)", "(const float4 *)(A + i)"),
        "value",
        r"B\[0\] got .*4096 of 4099",
    ),
    Wrong(
        "misaligned addresses",
        "vectorized",
        ("stride == 1 and (A.data_ptr() + 4 * offset) % 16 == 0 and B.data_ptr() % 16 == 0", "stride == 1"),
        ("stride == 1 && ((size_t)(A + offset) | (size_t)B) % 16 == 0", "stride == 1"),
        "misaligned",
        r"16",
    ),
    Wrong(
        "three of four stores",
        "unrolled",
        ("        B[i + 3 * THREADS] = d\n", ""),
        ("k < LOADS; ++k)\n            B[", "k < LOADS - 1; ++k)\n            B["),
        "unwritten",
        r"B\[768\] was never written",
    ),
    Wrong(
        "wide whatever the stride",
        "vectorized",
        ("stride == 1 and (A", "(A"),
        ("stride == 1 && ((size_t)", "((size_t)"),
        "value",
        r"B\[1\] got .*4095 of 4099",
    ),
]
