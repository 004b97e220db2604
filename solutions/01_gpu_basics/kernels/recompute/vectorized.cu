// recompute/vectorized: y = s(s(s(x))) and dx = dy * dy/dx in float32, s(t) = 1 / (1 + exp(-t)); four per thread.
//
// Against recompute: 16-byte accesses, and a division and an exponential that round a little worse and take far fewer
// instructions. Three sigmoids per number are affordable only if they are cheap.
// Watch: instructions per number; requests.
//
// launch recompute_forward4<<<((N + 1023) / 1024), (256), 0>>>(y, x, N)
// launch recompute_backward4<<<((N + 1023) / 1024), (256), 0>>>(dx, dy, x, N)

static __device__ float sigmoid(float t)
{
    return __fdividef(1.0f, 1.0f + __expf(-t));
}

static __device__ float chain(float x)
{
    return sigmoid(sigmoid(sigmoid(x)));
}

static __device__ float slope(float dy, float x)
{
    float a = sigmoid(x), b = sigmoid(a), c = sigmoid(b);
    return dy * c * (1.0f - c) * b * (1.0f - b) * a * (1.0f - a);
}

extern "C" __global__ void recompute_forward4(float *y, const float *x, int N)
{
    int i = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
    if (i + 3 < N) {
        float4 v = *(const float4 *)(x + i);  // i is a multiple of 4: the address is one of 16
        *(float4 *)(y + i) = make_float4(chain(v.x), chain(v.y), chain(v.z), chain(v.w));
    } else {
        for (; i < N; ++i)  // the last thread's numbers, fewer than four
            y[i] = chain(x[i]);
    }
}

extern "C" __global__ void recompute_backward4(float *dx, const float *dy, const float *x, int N)
{
    int i = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
    // BEGIN SOLUTION
    if (i + 3 < N) {
        float4 g = *(const float4 *)(dy + i);
        float4 v = *(const float4 *)(x + i);
        *(float4 *)(dx + i) = make_float4(slope(g.x, v.x), slope(g.y, v.y), slope(g.z, v.z), slope(g.w, v.w));
    } else {
        for (; i < N; ++i)
            dx[i] = slope(dy[i], x[i]);
    }
    // END SOLUTION
}
