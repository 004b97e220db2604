// recompute/operators: y = s(s(s(x))) and dx = dy * dy/dx in float32, s(t) = 1 / (1 + exp(-t)); a kernel per operator.
//
// The first rung, and what PyTorch does: three kernels forward, each of which keeps its output, and three backward.
// The slope of a sigmoid follows from its value: s' = s (1 - s).
// Watch: global load and store requests of all six launches, summed up.
//
// workspace s1 float32 (N)
// workspace s2 float32 (N)
// workspace d1 float32 (N)
// workspace d2 float32 (N)
// launch recompute_sigmoid<<<((N + 255) / 256), (256), 0>>>(s1, x, N)
// launch recompute_sigmoid<<<((N + 255) / 256), (256), 0>>>(s2, s1, N)
// launch recompute_sigmoid<<<((N + 255) / 256), (256), 0>>>(y, s2, N)
// launch recompute_slope<<<((N + 255) / 256), (256), 0>>>(d2, dy, y, N)
// launch recompute_slope<<<((N + 255) / 256), (256), 0>>>(d1, d2, s2, N)
// launch recompute_slope<<<((N + 255) / 256), (256), 0>>>(dx, d1, s1, N)

extern "C" __global__ void recompute_sigmoid(float *out, const float *a, int N)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N)
        out[i] = 1.0f / (1.0f + expf(-a[i]));
}

extern "C" __global__ void recompute_slope(float *da, const float *dout, const float *out, int N)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    // BEGIN SOLUTION
    if (i < N)
        da[i] = dout[i] * out[i] * (1.0f - out[i]);
    // END SOLUTION
}
