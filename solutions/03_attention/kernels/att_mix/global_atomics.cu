// att_mix/global_atomics: out[h, d] = sum over t of att[h, t] * v[t, h / (H / HKV), d] in float32, atomics in memory.
//
// Against warp_per_output: the lanes go across a row of v, not down a column. A block, one warp, has a head and at most
// 256 tokens; it adds its sums to those of the other blocks in out, which a kernel of its own has set to zero.
// Watch: load sectors fall; atomic additions to memory come in, and a launch.
//
// launch att_mix_zero<<<((H * D + 255) / 256), (256), 0>>>(out, H * D)
// launch att_mix_global_atomics<<<(H, (T + CHUNK - 1) / CHUNK), (32), 0>>>(out, att, v, T, H, HKV, D)

constexpr int CHUNK = 256;  // tokens of a block

extern "C" __global__ void att_mix_zero(float *out, int N)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N)
        out[i] = 0.0f;
}

extern "C" __global__ void att_mix_global_atomics(float *out, const float *att, const float *v, int T, int H, int HKV,
                                                  int D)
{
    int h = blockIdx.x, g = h / (H / HKV), first = blockIdx.y * CHUNK, last = min(T, first + CHUNK);
    for (int d = threadIdx.x; d < D; d += 32) {
        float sum = 0.0f;
        // BEGIN SOLUTION
        for (int t = first; t < last; ++t)
            sum += att[(size_t)h * T + t] * v[((size_t)t * HKV + g) * D + d];
        atomicAdd(&out[h * D + d], sum);
        // END SOLUTION
    }
}
