// fusion/vectorized: y[i] = sin(x[i])^2 + cos(x[i])^2 in float32, four numbers per thread.
//
// Against fused: one 16-byte load and store for four numbers, and sine and cosine together by one function, so that the
// reduction of the angle, most of the work, is done once.
// Watch: requests, a quarter as many; instructions per number.
//
// launch fusion_vectorized<<<((N + 1023) / 1024), (256), 0>>>(y, x, N)

static __device__ float circle(float angle)
{
    float s, c;
    sincosf(angle, &s, &c);
    return s * s + c * c;
}

extern "C" __global__ void fusion_vectorized(float *y, const float *x, int N)
{
    int i = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
    // BEGIN SOLUTION
    if (i + 3 < N) {
        float4 v = *(const float4 *)(x + i);  // i is a multiple of 4: the address is one of 16
        *(float4 *)(y + i) = make_float4(circle(v.x), circle(v.y), circle(v.z), circle(v.w));
    } else {
        for (; i < N; ++i)  // the last thread's numbers, fewer than four
            y[i] = circle(x[i]);
    }
    // END SOLUTION
}
