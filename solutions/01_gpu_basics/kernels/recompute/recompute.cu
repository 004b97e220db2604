// recompute/recompute: y = s(s(s(x))) and dx = dy * dy/dx in float32, s(t) = 1 / (1 + exp(-t)); nothing stored.
//
// Against store: forward writes y only. Backward starts from x and computes the activations again, in registers.
// Watch: global load and store requests; instructions.
//
// launch recompute_forward<<<((N + 255) / 256), (256), 0>>>(y, x, N)
// launch recompute_backward<<<((N + 255) / 256), (256), 0>>>(dx, dy, x, N)

static __device__ float sigmoid(float t)
{
    return 1.0f / (1.0f + expf(-t));
}

extern "C" __global__ void recompute_forward(float *y, const float *x, int N)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N)
        y[i] = sigmoid(sigmoid(sigmoid(x[i])));
}

extern "C" __global__ void recompute_backward(float *dx, const float *dy, const float *x, int N)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    // BEGIN SOLUTION
    if (i < N) {
        float a = sigmoid(x[i]), b = sigmoid(a), c = sigmoid(b);
        dx[i] = dy[i] * c * (1.0f - c) * b * (1.0f - b) * a * (1.0f - a);
    }
    // END SOLUTION
}
