// divergence/select: y[i] = x[i] after rounds[i] rounds of the formula of kind[i]; float32, kind and rounds int32.
//
// Against branch: both formulas are one, z + z * (p + q * z), with coefficients that a lane selects once. A kind now does
// a multiply-add that it would not need, and no lane waits for the other kind.
// Watch: active lanes per instruction; what is left is the loops' different lengths.
//
// launch divergence_select<<<((N + 255) / 256), (256), 0>>>(y, x, kind, rounds, N)

constexpr float STEP = 1.0f / 1024.0f;

extern "C" __global__ void divergence_select(float *y, const float *x, const int *kind, const int *rounds, int N)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    // BEGIN SOLUTION
    if (i < N) {
        float z = x[i];
        int n = rounds[i];
        float p = kind[i] == 0 ? STEP : 0.0f;
        float q = kind[i] == 0 ? 0.0f : -STEP;
        for (int k = 0; k < n; ++k)
            z += z * (p + q * z);
        y[i] = z;
    }
    // END SOLUTION
}
