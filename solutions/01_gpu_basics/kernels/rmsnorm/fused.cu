// rmsnorm/fused: y[r, c] = x[r, c] / sqrt(mean of x[r]^2 + eps) * w[c] in float32, one warp per row.
//
// Against two_kernels: the number is multiplied by its weight where it is normalized, while it is in a register. There
// is no intermediate result, and no second launch.
// Watch: global load and store sectors fall, and with them what moves through DRAM.
//
// launch rmsnorm_fused<<<(rows), (32), 0>>>(y, x, w, cols, eps)

extern "C" __global__ void rmsnorm_fused(float *y, const float *x, const float *w, int cols, float eps)
{
    const float *from = x + (size_t)blockIdx.x * cols;
    float *to = y + (size_t)blockIdx.x * cols;
    // The warp owns a row, lane n its columns n, n + 32 ...
    float squares = 0.0f;
    for (int c = threadIdx.x; c < cols; c += 32)
        squares += from[c] * from[c];
    for (int d = 16; d > 0; d /= 2)
        squares += __shfl_xor_sync(0xffffffff, squares, d);  // the sum, in every lane
    // BEGIN SOLUTION
    float scale = rsqrtf(squares / cols + eps);
    for (int c = threadIdx.x; c < cols; c += 32)
        to[c] = from[c] * scale * w[c];
    // END SOLUTION
}
