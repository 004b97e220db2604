// gemm/stream_k: C[M, N] = A[M, K] @ B[K, N] in float32, the work divided evenly whatever the size.
//
// Against fixed_tile: blocks are not given tiles, of which there may be one too many for the last wave. There
// are as many blocks as the machine holds at once, and the steps along K of all tiles, one tile after the other,
// are cut into as many equal shares. Where a share ends amid a tile, the block leaves its partial sums in a
// workspace, and the block that does the tile's last step adds them up, always in the same order.
// Tiles are 64 x 64: the part of them that hangs over the edge of C is work for nothing.
// Watch: time against N; the steps are gone.
//
// SMS is the number of multiprocessors (compile with -DSMS=... for others). Correct for any.
// workspace partial float32 (RESIDENT * SMS, 64 * 64)
// workspace ready int32 (RESIDENT * SMS)
// launch gemm_stream_k_clear<<<((RESIDENT * SMS + 255) / 256), (256), 0>>>(ready, RESIDENT * SMS)
// launch gemm_stream_k<<<(RESIDENT * SMS), (64), 0>>>(C, A, B, partial, ready, M, N, K)

#ifndef SMS
#define SMS 132
#endif
constexpr int RESIDENT = 8;                // blocks that a multiprocessor holds at once
constexpr int BM = 64, BN = 64, BK = 8;    // tile of C, and how much of K is a step
constexpr int TM = 8, TN = 8;              // elements of C per thread
constexpr int THREADS = 64;
constexpr int LDA = BM + 4;                // row of a tile of A, padded against conflicts of its stores

// 4 floats from p on, of which the first `left` exist; in one piece where p is 16-byte aligned.
__device__ float4 load4(const float *p, int left, bool aligned)
{
    if (aligned && left >= 4)
        return *(const float4 *)p;
    return make_float4(left > 0 ? p[0] : 0.0f, left > 1 ? p[1] : 0.0f,
                       left > 2 ? p[2] : 0.0f, left > 3 ? p[3] : 0.0f);
}

__device__ void store4(float *p, float4 v, int left, bool aligned)
{
    if (aligned && left >= 4) {
        *(float4 *)p = v;
        return;
    }
    if (left > 0) p[0] = v.x;
    if (left > 1) p[1] = v.y;
    if (left > 2) p[2] = v.z;
    if (left > 3) p[3] = v.w;
}

// The first row and column of this thread in a tile; its others are 4 on from there, and 4 half a tile further.
__device__ int my_row() { int lane = threadIdx.x % 32; return (lane & 2) * 2 + lane / 8 * 8; }
__device__ int my_col() { int lane = threadIdx.x % 32; return threadIdx.x / 32 * 16 + (lane & 1) * 4 + (lane & 4) * 2; }

// acc += this thread's part of A[row0.., k] @ B[k, col0..] for k from k_begin to k_end.
__device__ __forceinline__ void accumulate(float (&acc)[TM][TN], const float *A, const float *B, int M, int N, int K,
                                           int row0, int col0, int k_begin, int k_end)
{
    __shared__ __align__(16) float tA[2][BK][LDA];  // transposed; two stages, one being filled
    __shared__ __align__(16) float tB[2][BK][BN];
    int t = threadIdx.x, m0 = my_row(), n0 = my_col();
    bool aligned_a = K % 4 == 0 && (size_t)A % 16 == 0;
    bool aligned_b = N % 4 == 0 && (size_t)B % 16 == 0;
    int copy_m = t / 2, copy_ak = t % 2 * 4, copy_bk = t / 16, copy_n = t % 16 * 4;
    float4 next_a[2], next_b[2];  // on their way from global memory
    auto fetch = [&](int k0) {
        for (int p = 0; p < 2; ++p) {
            int row = row0 + copy_m + BM / 2 * p, k = k0 + copy_bk + BK / 2 * p;
            next_a[p] = load4(A + (size_t)row * K + k0 + copy_ak, row < M ? k_end - k0 - copy_ak : 0, aligned_a);
            next_b[p] = load4(B + (size_t)k * N + col0 + copy_n, k < k_end ? N - col0 - copy_n : 0, aligned_b);
        }
    };
    auto stage = [&](int s) {
        for (int p = 0; p < 2; ++p) {
            float *to = &tA[s][copy_ak][copy_m + BM / 2 * p];
            to[0] = next_a[p].x;
            to[LDA] = next_a[p].y;
            to[2 * LDA] = next_a[p].z;
            to[3 * LDA] = next_a[p].w;
            *(float4 *)&tB[s][copy_bk + BK / 2 * p][copy_n] = next_b[p];
        }
    };
    fetch(k_begin);
    stage(0);
    __syncthreads();
    int s = 0;
    for (int k0 = k_begin; k0 < k_end; k0 += BK) {
        fetch(k0 + BK);  // past the end this reads nothing
        #pragma unroll
        for (int k = 0; k < BK; k++) {
            float4 a[TM / 4], b[TN / 4];
            for (int i = 0; i < TM / 4; ++i)
                a[i] = *(float4 *)&tA[s][k][m0 + i * BM / 2];
            for (int j = 0; j < TN / 4; ++j)
                b[j] = *(float4 *)&tB[s][k][n0 + j * BN / 2];
            for (int i = 0; i < TM; ++i)
                for (int j = 0; j < TN; ++j)
                    acc[i][j] = fmaf(((float *)a)[i], ((float *)b)[j], acc[i][j]);
        }
        s ^= 1;
        stage(s);         // nobody has read that stage since the barrier of the step before
        __syncthreads();  // it is there for all
    }
}

// Leave this block's partial sums, each thread's where the same thread of another block will look for them.
__device__ void leave(const float (&acc)[TM][TN], float *partial, int *ready)
{
    float4 *mine = (float4 *)partial + (size_t)blockIdx.x * (BM * BN / 4) + threadIdx.x;
    for (int i = 0; i < TM * TN / 4; ++i)
        mine[i * THREADS] = *(float4 *)&acc[i / 2][i % 2 * 4];
    __threadfence();  // the sums are seen by all before the flag is
    __syncthreads();
    if (threadIdx.x == 0)
        atomicExch(&ready[blockIdx.x], 1);
}

// Wait until block b has left its partial sums, and add them.
__device__ void add(float (&acc)[TM][TN], const float *partial, int *ready, int b)
{
    if (threadIdx.x == 0)
        while (atomicAdd(&ready[b], 0) == 0) {}
    __syncthreads();
    __threadfence();
    const float4 *from = (const float4 *)partial + (size_t)b * (BM * BN / 4) + threadIdx.x;
    for (int i = 0; i < TM * TN / 4; ++i) {
        float4 v = __ldcg(from + i * THREADS);
        acc[i / 2][i % 2 * 4 + 0] += v.x;
        acc[i / 2][i % 2 * 4 + 1] += v.y;
        acc[i / 2][i % 2 * 4 + 2] += v.z;
        acc[i / 2][i % 2 * 4 + 3] += v.w;
    }
}

__device__ void write(const float (&acc)[TM][TN], float *C, int M, int N, int row0, int col0)
{
    bool aligned_c = N % 4 == 0 && (size_t)C % 16 == 0;
    for (int i = 0; i < TM; ++i) {
        int row = row0 + my_row() + i / 4 * (BM / 2) + i % 4;
        for (int j = 0; j < TN / 4; j++) {
            int col = col0 + my_col() + j * (BN / 2);
            float4 v = *(float4 *)&acc[i][4 * j];
            store4(C + (size_t)row * N + col, v, row < M ? N - col : 0, aligned_c);
        }
    }
}

extern "C" __global__ void gemm_stream_k_clear(int *ready, int blocks)
{
    int b = blockIdx.x * blockDim.x + threadIdx.x;
    if (b < blocks)
        ready[b] = 0;
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
gemm_stream_k(float *C, const float *A, const float *B, float *partial, int *ready, int M, int N, int K)
{
    int tiles_m = (M + BM - 1) / BM, tiles_n = (N + BN - 1) / BN, steps = (K + BK - 1) / BK;
    int total = tiles_m * tiles_n * steps;  // tile 0's steps first, then tile 1's ...; fits up to 41000 cubed
    // BEGIN SOLUTION
    auto begin_of = [&](long long block) { return (int)(block * total / gridDim.x); };
    int begin = begin_of(blockIdx.x), end = begin_of(blockIdx.x + 1);
    // From the end of the share to its beginning: what others wait for comes first, and what this block waits
    // for, by then long done, last. It waits only for blocks of lower number, which the GPU starts earlier.
    while (begin < end) {
        int tile = (end - 1) / steps, tile_begin = tile * steps, first = max(begin, tile_begin);
        int row0 = tile / tiles_n * BM, col0 = tile % tiles_n * BN;
        float acc[TM][TN] = {};
        accumulate(acc, A, B, M, N, K, row0, col0, (first - tile_begin) * BK, min(K, (end - tile_begin) * BK));
        if (end < tile_begin + steps) {
            leave(acc, partial, ready);
        } else {
            int have = first;  // the sums of the tile's steps from here on are in acc
            for (int b = blockIdx.x - 1; have > tile_begin; --b) {
                if (begin_of(b) < have)  // with few steps, some blocks have none
                    add(acc, partial, ready, b);
                have = begin_of(b);
            }
            write(acc, C, M, N, row0, col0);
        }
        end = first;
    }
    // END SOLUTION
}
