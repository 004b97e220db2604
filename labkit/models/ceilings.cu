// Kernels that do one thing as fast as the machine can, to measure its ceilings. Each is told how often to
// repeat (a kernel argument, so that the compiler cannot know), and keeps its results alive through a store
// that never happens with random data.

extern "C" __global__ void read_only(float *out, const float4 *in, long long n, int repeat)
{
    // Four independent 16-byte loads in flight per thread; consecutive threads read consecutive float4.
    long long stride = (long long)gridDim.x * blockDim.x;
    float sum = 0.0f;
    for (int r = 0; r < repeat; ++r)
        for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += 4 * stride) {
            float4 v[4];
#pragma unroll
            for (int j = 0; j < 4; ++j)
                v[j] = i + j * stride < n ? __ldcg(in + i + j * stride) : make_float4(0, 0, 0, 0);
#pragma unroll
            for (int j = 0; j < 4; ++j)
                sum += v[j].x + v[j].y + v[j].z + v[j].w;
        }
    if (sum == 1.2345f)
        *out = sum;
}

extern "C" __global__ void shared_read(float *out, const float4 *in, int repeat)
{
    // 16-byte loads, consecutive lanes on consecutive words: no bank conflict. No address comes back soon, so that
    // no load can be spared; four adds per load keep all four words alive at a quarter of the FP32 pipe's rate.
    __shared__ float4 tile[1024];
    tile[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    float sum[4] = {};
    for (int r = 0; r < repeat; ++r)
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            float4 v = tile[(threadIdx.x + 33 * (8 * r + j)) & 1023];
            sum[0] += v.x, sum[1] += v.y, sum[2] += v.z, sum[3] += v.w;
        }
    float total = sum[0] + sum[1] + sum[2] + sum[3];
    if (total == 1.2345f)
        *out = total;
}

extern "C" __global__ void fma_fp32(float *out, const float *in, int repeat)
{
    // 16 independent chains hide the latency of an FMA; |m| < 1 keeps the values finite.
    float a[16], m = in[threadIdx.x & 31] * 0.1f, b = in[(threadIdx.x + 1) & 31];
#pragma unroll
    for (int j = 0; j < 16; ++j)
        a[j] = in[(threadIdx.x + j) & 31];
    for (int r = 0; r < repeat; r += 8)
#pragma unroll
        for (int k = 0; k < 8 * 16; ++k)
            a[k % 16] = fmaf(a[k % 16], m, b);
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < 16; ++j)
        sum += a[j];
    if (sum == 1.2345f)
        *out = sum;
}
