"""Wrong kernels of divergence."""

from wrong import Wrong


WRONG = [
    Wrong(
        "one round too many",
        "branch",
        ("            for _ in range(rounds[i]):\n                z += STEP * z\n",
         "            for _ in range(rounds[i] + 1):\n                z += STEP * z\n"),
        ("k < n; ++k)\n                z += STEP", "k <= n; ++k)\n                z += STEP"),
        "value",
        r"y\[\d+\] got .* want ",
    ),
    Wrong(
        "a whole warp takes its first lane's side",
        "branch",
        ("if kind[i] == 0:", "if kind[i - i % 32] == 0:"),
        ("if (kind[i] == 0)", "if (kind[i - i % 32] == 0)"),
        "value",
        r"y\[\d+\] got .* want ",
    ),
    Wrong(
        "no bounds",
        "select",
        ("if i < y.shape[0]:", "if i >= 0:"),
        ("if (i < N)", "if (i >= 0)"),
        "out_of_bounds",
        r"outside|behind|past|x\[",
    ),
    Wrong(
        "coefficients of the other kind",
        "select",
        ("p = STEP if kind[i] == 0", "p = STEP if kind[i] != 0"),
        ("p = kind[i] == 0 ?", "p = kind[i] != 0 ?"),
        "value",
        r"y\[\d+\] got .* want ",
    ),
    Wrong(
        "counts before the bins are zero",
        "sorted",
        ("    cuda.syncthreads()  # nobody counts", "    # nobody counts"),
        ("    __syncthreads();  // nobody counts", "    // nobody counts"),
        "race|uninitialized",
        r"start\[",
    ),
    Wrong(
        "sums read while others write them",
        "sorted",
        ("        cuda.syncthreads()  # everybody has read", "        # everybody has read"),
        ("        __syncthreads();  // everybody has read", "        // everybody has read"),
        "race",
        r"barrier|syncthreads",
        ("start[t] += below", "start[t] += below"),
    ),
    Wrong(
        "takes items from a list that is not complete",
        "sorted",
        ("    cuda.syncthreads()  # the list is complete", "    # the list is complete"),
        ("    __syncthreads();  // the list is complete", "    // the list is complete"),
        "race|uninitialized",
        r"order\[",
    ),
    Wrong(
        "bins begin where they end",
        "sorted",
        ("    start[t] -= mine", "    start[t] -= 0 * mine"),
        ("    start[t] -= mine", "    start[t] -= 0 * mine"),
        "out_of_bounds|uninitialized|value|race",
        r"order|y\[",
    ),
    Wrong(
        "results stay in sorted order",
        "sorted",
        ("        y[i] = z", "        y[first + place] = z"),
        ("        y[i] = z", "        y[first + place] = z"),
        "value",
        r"y\[\d+\] got .* want ",
    ),
]  # fmt: skip
