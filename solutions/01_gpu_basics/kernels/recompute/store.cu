// recompute/store: y = s(s(s(x))) and dx = dy * dy/dx in float32, s(t) = 1 / (1 + exp(-t)); one kernel each way.
//
// Against operators: each way is fused. Forward stores the activations s1 and s2, backward loads them. It needs y too,
// and computes it from s2, which is cheaper than a fourth load.
// Watch: global load and store requests.
//
// workspace s1 float32 (N)
// workspace s2 float32 (N)
// launch recompute_store_forward<<<((N + 255) / 256), (256), 0>>>(y, s1, s2, x, N)
// launch recompute_store_backward<<<((N + 255) / 256), (256), 0>>>(dx, dy, s1, s2, N)

static __device__ float sigmoid(float t)
{
    return 1.0f / (1.0f + expf(-t));
}

extern "C" __global__ void recompute_store_forward(float *y, float *s1, float *s2, const float *x, int N)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N) {
        float a = sigmoid(x[i]);
        float b = sigmoid(a);
        s1[i] = a;
        s2[i] = b;
        y[i] = sigmoid(b);
    }
}

extern "C" __global__ void recompute_store_backward(float *dx, const float *dy, const float *s1, const float *s2, int N)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    // BEGIN SOLUTION
    if (i < N) {
        float a = s1[i], b = s2[i], c = sigmoid(b);
        dx[i] = dy[i] * c * (1.0f - c) * b * (1.0f - b) * a * (1.0f - a);
    }
    // END SOLUTION
}
