// decode_attention/fused: O[h] = softmax(Q[h] K[:, g]^T / sqrt(D)) V[g], the cache in float16, all else float32.
//
// Against five_kernels: one launch, a block per query head. The block takes 512 tokens at a time; their scores stay in
// shared memory. It keeps the largest score so far and the sum of exponentials relative to it, and where a larger one
// comes, what there is of O and of the sum shrinks. Masked tokens are not read at all.
// Watch: launches; store sectors fall to those of O; but there are only HQ blocks.
//
// launch decode_attention_fused<<<(HQ), (256), 0>>>(O, Q, K, V, T, HQ, HKV, D, C, n_past)

#include <cuda_fp16.h>

constexpr int WARPS = 8, CHUNK = 512;
constexpr float LOWEST = -3.402823466e38f;  // and not -inf: exp(-inf - -inf) is NaN

extern "C" __global__ void __launch_bounds__(32 * WARPS)
decode_attention_fused(float *O, const float *Q, const half *K, const half *V, int T, int HQ, int HKV, int D, int C,
                       int n_past)
{
    __shared__ float q[256], o[256], s[CHUNK], tops[WARPS], sums[WARPS];
    int h = blockIdx.x, g = h / (HQ / HKV), lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int keys = n_past < 0 ? T : min(T, n_past + 1);
    float most = LOWEST, sum = 0.0f;  // of all tokens so far; the same in all threads
    if (threadIdx.x < D) {
        q[threadIdx.x] = Q[h * D + threadIdx.x] / sqrtf(D);
        o[threadIdx.x] = 0.0f;
    }
    __syncthreads();  // all of q is there
    for (int t0 = 0; t0 < keys; t0 += CHUNK) {
        int n = min(CHUNK, keys - t0);
        // BEGIN SOLUTION
        // A warp per token; each warp remembers the largest of its scores.
        float top = most;
        for (int t = warp; t < n; t += WARPS) {
            float score = 0.0f;
            for (int d = lane; d < D; d += 32)
                score += __half2float(K[((size_t)(t0 + t) * HKV + g) * D + d]) * q[d];
            for (int far = 16; far > 0; far /= 2)
                score += __shfl_xor_sync(0xffffffff, score, far);
            top = fmaxf(top, score);
            if (lane == 0)
                s[t] = score;
        }
        if (lane == 0)
            tops[warp] = top;
        __syncthreads();  // all scores of the chunk are there, and each warp's largest
        for (int w = 0; w < WARPS; ++w)
            top = fmaxf(top, tops[w]);
        float shrink = expf(most - top), part = 0.0f;
        most = top;
        for (int t = threadIdx.x; t < n; t += 32 * WARPS) {
            s[t] = expf(s[t] - most);
            part += s[t];
        }
        for (int far = 16; far > 0; far /= 2)
            part += __shfl_xor_sync(0xffffffff, part, far);
        if (lane == 0)
            sums[warp] = part;
        __syncthreads();  // all weights are there, and each warp's sum
        sum *= shrink;
        for (int w = 0; w < WARPS; ++w)
            sum += sums[w];
        // A warp per number of O: its lanes go along the tokens, which lie side by side in V.
        for (int d = warp; d < D; d += WARPS) {
            float number = 0.0f;
            for (int t = lane; t < n; t += 32)
                number += __half2float(V[((size_t)g * D + d) * C + t0 + t]) * s[t];
            for (int far = 16; far > 0; far /= 2)
                number += __shfl_xor_sync(0xffffffff, number, far);
            if (lane == 0)
                o[d] = o[d] * shrink + number;
        }
        __syncthreads();  // nobody reads these weights any more
        // END SOLUTION
    }
    if (threadIdx.x < D)
        O[h * D + threadIdx.x] = sum > 0.0f ? o[threadIdx.x] / sum : 0.0f;  // a head without keys has no sum
}
