// fusion/five_kernels: y[i] = sin(x[i])^2 + cos(x[i])^2 in float32, a kernel for each of the five operators.
//
// The first rung, and what PyTorch does with the formula as people write it. Every intermediate vector goes out to memory
// and comes back.
// Watch: global load and store requests of all five launches, summed up.
//
// workspace s float32 (N)
// workspace c float32 (N)
// workspace s2 float32 (N)
// workspace c2 float32 (N)
// launch fusion_sin<<<((N + 255) / 256), (256), 0>>>(s, x, N)
// launch fusion_cos<<<((N + 255) / 256), (256), 0>>>(c, x, N)
// launch fusion_square<<<((N + 255) / 256), (256), 0>>>(s2, s, N)
// launch fusion_square<<<((N + 255) / 256), (256), 0>>>(c2, c, N)
// launch fusion_add<<<((N + 255) / 256), (256), 0>>>(y, s2, c2, N)

extern "C" __global__ void fusion_sin(float *out, const float *a, int N)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N)
        out[i] = sinf(a[i]);
}

extern "C" __global__ void fusion_cos(float *out, const float *a, int N)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N)
        out[i] = cosf(a[i]);
}

extern "C" __global__ void fusion_square(float *out, const float *a, int N)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    // BEGIN SOLUTION
    if (i < N)
        out[i] = a[i] * a[i];
    // END SOLUTION
}

extern "C" __global__ void fusion_add(float *out, const float *a, const float *b, int N)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    // BEGIN SOLUTION
    if (i < N)
        out[i] = a[i] + b[i];
    // END SOLUTION
}
