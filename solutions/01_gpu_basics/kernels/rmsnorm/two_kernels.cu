// rmsnorm/two_kernels: y[r, c] = x[r, c] / sqrt(mean of x[r]^2 + eps) * w[c] in float32, as llama.cpp does it.
//
// The first rung, two operators of a graph, two kernels: a warp per row normalizes, into a tensor between; a thread per
// number multiplies by the weight of its column.
// Watch: global load and store sectors, and what moves through DRAM; the intermediate result is written and read.
//
// workspace norm float32 (rows, cols)
// launch rmsnorm_two_kernels_norm<<<(rows), (32), 0>>>(norm, x, cols, eps)
// launch rmsnorm_two_kernels_mul<<<((rows * cols + 255) / 256), (256), 0>>>(y, norm, w, rows * cols, cols)

extern "C" __global__ void rmsnorm_two_kernels_norm(float *norm, const float *x, int cols, float eps)
{
    const float *from = x + (size_t)blockIdx.x * cols;
    float *to = norm + (size_t)blockIdx.x * cols;
    // BEGIN SOLUTION
    // The warp owns a row, lane n its columns n, n + 32 ...
    float squares = 0.0f;
    for (int c = threadIdx.x; c < cols; c += 32)
        squares += from[c] * from[c];
    for (int d = 16; d > 0; d /= 2)
        squares += __shfl_xor_sync(0xffffffff, squares, d);  // the sum, in every lane
    float scale = rsqrtf(squares / cols + eps);
    for (int c = threadIdx.x; c < cols; c += 32)
        to[c] = from[c] * scale;
    // END SOLUTION
}

extern "C" __global__ void rmsnorm_two_kernels_mul(float *y, const float *norm, const float *w, long long size, int cols)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < size)
        y[i] = norm[i] * w[i % cols];
}
