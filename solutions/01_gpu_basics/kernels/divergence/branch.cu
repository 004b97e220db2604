// divergence/branch: y[i] = x[i] after rounds[i] rounds of the formula of kind[i]; float32, kind and rounds int32.
//
// The first rung: one thread per item, and each kind has its side of a branch. Lanes of both kinds share a warp.
// Watch: active lanes per instruction (smsp__thread_inst_executed_per_inst_executed.ratio), 32 at best.
//
// launch divergence_branch<<<((N + 255) / 256), (256), 0>>>(y, x, kind, rounds, N)

constexpr float STEP = 1.0f / 1024.0f;

extern "C" __global__ void divergence_branch(float *y, const float *x, const int *kind, const int *rounds, int N)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    // BEGIN SOLUTION
    if (i < N) {
        float z = x[i];
        int n = rounds[i];
        if (kind[i] == 0) {
            for (int k = 0; k < n; ++k)
                z += STEP * z;
        } else {
            for (int k = 0; k < n; ++k)
                z -= STEP * z * z;
        }
        y[i] = z;
    }
    // END SOLUTION
}
