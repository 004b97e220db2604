// Kernels of the kinds that real programs are made of, written after the emulator's counting was frozen. How many of its
// counts were equal to Nsight Compute's on these is told apart (labkit fidelity held_out).

#include <cuda_fp16.h>
#include <mma.h>

#define I (blockIdx.x * blockDim.x + threadIdx.x)
#define LANE (threadIdx.x % 32)
#define WARP (threadIdx.x / 32)
#define FULL 0xffffffffu

__device__ __forceinline__ float sum_of_warp(float v)
{
    for (int d = 16; d; d /= 2)
        v += __shfl_xor_sync(FULL, v, d);
    return v;
}

__device__ __forceinline__ float sum_of_block(float v)
{
    __shared__ float part[32];
    v = sum_of_warp(v);
    if (LANE == 0)
        part[WARP] = v;
    __syncthreads();
    v = LANE < blockDim.x / 32 ? part[LANE] : 0;
    return sum_of_warp(v);
}

extern "C" {

// --- reductions and scans ---

__global__ void block_reduce(float *out, const float *in, int n)
{
    float sum = 0;
    for (int i = I; i < n; i += gridDim.x * blockDim.x)
        sum += in[i];
    sum = sum_of_block(sum);
    if (threadIdx.x == 0)
        out[blockIdx.x] = sum;
}

__global__ void argmax_rows(int *out, const float *in, int columns)
{
    // One warp per row; the first of equals wins.
    const float *row = in + (size_t)blockIdx.x * columns;
    float best = -1e30f;
    int place = columns;
    for (int j = threadIdx.x; j < columns; j += 32)
        if (row[j] > best)
            best = row[j], place = j;
    for (int d = 16; d; d /= 2) {
        float other = __shfl_down_sync(FULL, best, d);
        int where = __shfl_down_sync(FULL, place, d);
        if (other > best || (other == best && where < place))
            best = other, place = where;
    }
    if (threadIdx.x == 0)
        out[blockIdx.x] = place;
}

__global__ void block_scan(int *out, const int *in, int n)
{
    __shared__ int sums[32];
    int v = I < n ? in[I] : 0;
    for (int d = 1; d < 32; d *= 2) {
        int below = __shfl_up_sync(FULL, v, d);
        if (LANE >= d)
            v += below;
    }
    if (LANE == 31)
        sums[WARP] = v;
    __syncthreads();
    if (WARP == 0) {
        int s = LANE < blockDim.x / 32 ? sums[LANE] : 0;
        for (int d = 1; d < 32; d *= 2) {
            int below = __shfl_up_sync(FULL, s, d);
            if (LANE >= d)
                s += below;
        }
        sums[LANE] = s;
    }
    __syncthreads();
    if (WARP)
        v += sums[WARP - 1];
    if (I < n)
        out[I] = v;
}

// --- rows of a transformer ---

__global__ void softmax_quads(float4 *out, const float4 *in, int quads)
{
    // One warp per row, which its lanes hold in registers: 512 columns.
    const float4 *row = in + (size_t)blockIdx.x * quads;
    float4 v[4];
    float top = -1e30f, sum = 0;
    for (int j = 0; j < 4; ++j) {
        v[j] = row[32 * j + LANE];
        top = fmaxf(top, fmaxf(fmaxf(v[j].x, v[j].y), fmaxf(v[j].z, v[j].w)));
    }
    for (int d = 16; d; d /= 2)
        top = fmaxf(top, __shfl_xor_sync(FULL, top, d));
    for (int j = 0; j < 4; ++j) {
        v[j] = {__expf(v[j].x - top), __expf(v[j].y - top), __expf(v[j].z - top), __expf(v[j].w - top)};
        sum += v[j].x + v[j].y + v[j].z + v[j].w;
    }
    float scale = 1 / sum_of_warp(sum);
    for (int j = 0; j < 4; ++j) {
        v[j] = {v[j].x * scale, v[j].y * scale, v[j].z * scale, v[j].w * scale};
        out[(size_t)blockIdx.x * quads + 32 * j + LANE] = v[j];
    }
}

__global__ void rmsnorm(float *out, const float *in, const float *weight, int columns)
{
    const float *row = in + (size_t)blockIdx.x * columns;
    float sum = 0;
    for (int j = threadIdx.x; j < columns; j += blockDim.x)
        sum = fmaf(row[j], row[j], sum);
    float scale = rsqrtf(sum_of_block(sum) / columns + 1e-5f);
    for (int j = threadIdx.x; j < columns; j += blockDim.x)
        out[(size_t)blockIdx.x * columns + j] = row[j] * scale * weight[j];
}

__global__ void rope(float2 *out, const float2 *in, const int *position, int pairs)
{
    // blockIdx.x: token; threads: the pairs of a head.
    for (int j = threadIdx.x; j < pairs; j += blockDim.x) {
        float angle = position[blockIdx.x] * __expf(-9.21034f * j / pairs);
        float c = __cosf(angle), s = __sinf(angle);
        float2 v = in[(size_t)blockIdx.x * pairs + j];
        out[(size_t)blockIdx.x * pairs + j] = {v.x * c - v.y * s, v.x * s + v.y * c};
    }
}

__global__ void swiglu(float4 *out, const float4 *gate, const float4 *up, int quads)
{
    if (I >= quads)
        return;
    float4 g = gate[I], u = up[I];
    auto f = [](float x, float y) { return __fdividef(x, 1 + __expf(-x)) * y; };
    out[I] = {f(g.x, u.x), f(g.y, u.y), f(g.z, u.z), f(g.w, u.w)};
}

__global__ void permuted_rows(float4 *out, const float4 *table, const int *row, int quads)
{
    // A lookup of rows, as of an embedding.
    for (int j = threadIdx.x; j < quads; j += blockDim.x)
        out[(size_t)blockIdx.x * quads + j] = table[(size_t)row[blockIdx.x] * quads + j];
}

// --- half precision and quantized weights ---

__global__ void half_axpy(__half2 *y, const __half2 *x, float a, int n)
{
    __half2 scale = __float2half2_rn(a);
    for (int i = I; i < n; i += gridDim.x * blockDim.x)
        y[i] = __hfma2(scale, x[i], y[i]);
}

__global__ void half_matvec(float *out, const __half *A, const __half *x, int rows, int columns)
{
    // One warp per row; 16 bytes, that is 8 halves, per load.
    int row = blockIdx.x * (blockDim.x / 32) + WARP;
    if (row >= rows)
        return;
    const uint4 *a = reinterpret_cast<const uint4 *>(A + (size_t)row * columns);
    const uint4 *b = reinterpret_cast<const uint4 *>(x);
    float sum = 0;
    for (int k = LANE; k < columns / 8; k += 32) {
        uint4 u = a[k], v = b[k];
        const __half2 *p = reinterpret_cast<const __half2 *>(&u), *q = reinterpret_cast<const __half2 *>(&v);
        for (int j = 0; j < 4; ++j) {
            float2 s = __half22float2(p[j]), t = __half22float2(q[j]);
            sum = fmaf(s.x, t.x, fmaf(s.y, t.y, sum));
        }
    }
    sum = sum_of_warp(sum);
    if (LANE == 0)
        out[row] = sum;
}

struct Block8 { unsigned short scale; signed char q[32]; };  // 34 bytes: a half and 32 weights

__global__ void q8_matvec(float *out, const unsigned char *weights, const int *x, float x_scale, int rows, int blocks)
{
    // One warp per row; a lane takes one block of 32 weights after another, by halves of words since 34 is no 4's.
    int row = I / 32;
    if (row >= rows)
        return;
    const Block8 *w = reinterpret_cast<const Block8 *>(weights) + (size_t)row * blocks;
    float sum = 0;
    for (int b = LANE; b < blocks; b += 32) {
        const unsigned short *q = reinterpret_cast<const unsigned short *>(w[b].q);
        int dot = 0;
        for (int j = 0; j < 8; ++j)
            dot = __dp4a(q[2 * j] | q[2 * j + 1] << 16, x[8 * b + j], dot);
        sum += __half2float(__ushort_as_half(w[b].scale)) * x_scale * dot;
    }
    sum = sum_of_warp(sum);
    if (LANE == 0)
        out[row] = sum;
}

__global__ void int4_unpack(float *out, const unsigned *packed, const __half *scales, int words)
{
    // Eight weights of 4 bits per word, one scale per 32 weights.
    if (I >= words)
        return;
    unsigned w = packed[I];
    float scale = __half2float(scales[I / 4]);
    for (int j = 0; j < 8; ++j)
        out[8 * I + j] = ((int)(w >> 4 * j & 15) - 8) * scale;
}

// --- tiles ---

__global__ void transpose_rows(float *out, const float *in, int n)
{
    // 32 x 32 tiles by 32 x 8 threads; columns are swizzled.
    __shared__ float tile[32 * 32];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32;
    for (int j = threadIdx.y; j < 32; j += 8)
        if (x < n && y + j < n)
            tile[j * 32 + (threadIdx.x ^ j)] = in[(size_t)(y + j) * n + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x, y = blockIdx.x * 32;
    for (int j = threadIdx.y; j < 32; j += 8)
        if (x < n && y + j < n)
            out[(size_t)(y + j) * n + x] = tile[threadIdx.x * 32 + (j ^ threadIdx.x)];
}

__global__ void pipelined_dot(float *out, const float4 *a, int tiles)
{
    // Two tiles of 128 quads: one is copied while the other is summed.
    __shared__ float4 stage[2][128];
    auto fetch = [&](int t) {
        unsigned to = (unsigned)__cvta_generic_to_shared(&stage[t % 2][threadIdx.x]);
        const float4 *from = a + ((size_t)blockIdx.x * tiles + t) * 128 + threadIdx.x;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\ncp.async.commit_group;" ::"r"(to), "l"(from));
    };
    fetch(0);
    float sum = 0;
    for (int t = 0; t < tiles; ++t) {
        if (t + 1 < tiles) {
            fetch(t + 1);
            asm volatile("cp.async.wait_group 1;" ::: "memory");
        } else {
            asm volatile("cp.async.wait_group 0;" ::: "memory");
        }
        __syncthreads();
        float4 v = stage[t % 2][127 - threadIdx.x];
        sum += v.x * v.y + v.z * v.w;
        __syncthreads();
    }
    out[I] = sum;
}

__global__ void mma_tile(float *out, const __half *A, const __half *B, int K)
{
    // One warp: C (16 x 8) = A (16 x K) B (8 x K)^T, through shared memory in steps of 16.
    __shared__ __align__(16) __half a[16 * 16], b[8 * 16];
    float c[4] = {};
    for (int k = 0; k < K; k += 16) {
        reinterpret_cast<uint4 *>(a)[LANE] = *reinterpret_cast<const uint4 *>(A + LANE / 2 * K + k + LANE % 2 * 8);
        if (LANE < 16)
            reinterpret_cast<uint4 *>(b)[LANE] = *reinterpret_cast<const uint4 *>(B + LANE / 2 * K + k + LANE % 2 * 8);
        __syncwarp();
        unsigned x[4], y[2];
        unsigned at = (unsigned)__cvta_generic_to_shared(a + LANE % 16 * 16 + LANE / 16 * 8);
        unsigned bt = (unsigned)__cvta_generic_to_shared(b + LANE % 8 * 16 + LANE / 8 % 2 * 8);
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(at));
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(y[0]), "=r"(y[1]) : "r"(bt));
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                     "{%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
        __syncwarp();
    }
    float *mine = out + blockIdx.x * 128 + LANE / 4 * 8 + LANE % 4 * 2;
    *reinterpret_cast<float2 *>(mine) = {c[0], c[1]};
    *reinterpret_cast<float2 *>(mine + 64) = {c[2], c[3]};
}

__global__ void wmma_tile(float *out, const __half *A, const __half *B, int K)
{
    // Four warps, each a 16 x 16 tile of its own: A (16 x K, rows), B (K x 64, rows), C (16 x 64).
    using namespace nvcuda;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> a;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> b;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> c;
    wmma::fill_fragment(c, 0.0f);
    for (int k = 0; k < K; k += 16) {
        wmma::load_matrix_sync(a, A + k, K);
        wmma::load_matrix_sync(b, B + k * 64 + WARP * 16, 64);
        wmma::mma_sync(c, a, b, c);
    }
    wmma::store_matrix_sync(out + blockIdx.x * 1024 + WARP * 16, c, 64, wmma::mem_row_major);
}

// --- bins and places ---

__global__ void histogram(unsigned *bins, const uchar4 *in, int n)
{
    __shared__ unsigned mine[256];
    mine[threadIdx.x] = 0;
    __syncthreads();
    for (int i = I; i < n; i += gridDim.x * blockDim.x) {
        uchar4 v = in[i];
        atomicAdd(&mine[v.x], 1u);
        atomicAdd(&mine[v.y], 1u);
        atomicAdd(&mine[v.z], 1u);
        atomicAdd(&mine[v.w], 1u);
    }
    __syncthreads();
    if (mine[threadIdx.x])
        atomicAdd(&bins[threadIdx.x], mine[threadIdx.x]);
}

__global__ void compact(int *out, int *count, const int *in, int n)
{
    // A warp asks for its places at once; which warp comes first is open, so every place is written as it comes.
    int keep = I < n && in[I] % 3 == 0;
    unsigned kept = __ballot_sync(FULL, keep);
    int first = 0;
    if (LANE == 0)
        first = atomicAdd(count, __popc(kept));
    first = __shfl_sync(FULL, first, 0);
    if (keep)
        out[first + __popc(kept & (1u << LANE) - 1)] = I;
}

__global__ void compact_plainly(int *out, int *count, const int *in, int n)
{
    if (I < n && in[I] % 3 == 0)
        out[atomicAdd(count, 1)] = I;
}

// --- control flow and places in memory ---

__global__ void leaving_warps(float *out, const float *in, int n)
{
    // Blocks leave before the first barrier, odd warps after it, and of the others two lanes in three after a loop.
    __shared__ float seen[256];
    if (blockIdx.x % 4 == 1)
        return;
    seen[threadIdx.x] = I < n ? in[I] * 2 : 0;
    __syncthreads();
    float v = seen[threadIdx.x ^ 1];
    if (WARP % 2 == 1) {
        if (I < n)
            out[I] = v;
        return;
    }
    for (int j = 0; j < (int)LANE; ++j)
        v = v * 0.5f + seen[threadIdx.x ^ j];
    if (I >= n || LANE % 3)
        return;
    out[I] = v;
}

__global__ void stencil_3d(float *out, const float *in, int nx, int ny, int nz)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    int z = blockIdx.z * blockDim.z + threadIdx.z;
    if (x < 1 || y < 1 || z < 1 || x >= nx - 1 || y >= ny - 1 || z >= nz - 1)
        return;
    const float *at = in + ((size_t)z * ny + y) * nx + x;
    float around = at[-1] + at[1] + at[-nx] + at[nx] + at[-nx * ny] + at[nx * ny];
    out[((size_t)z * ny + y) * nx + x] = 0.4f * at[0] + 0.1f * around;
}

__global__ void smooth(float *out, const float *in, int radius, int n)
{
    // Dynamic shared memory: the block's elements and `radius` on either side.
    extern __shared__ float near[];
    int first = blockIdx.x * blockDim.x - radius;
    for (int i = threadIdx.x; i < (int)blockDim.x + 2 * radius; i += blockDim.x)
        near[i] = first + i >= 0 && first + i < n ? in[first + i] : 0;
    __syncthreads();
    float sum = 0;
    for (int j = 0; j <= 2 * radius; ++j)
        sum += near[threadIdx.x + j];
    if (I < n)
        out[I] = sum / (2 * radius + 1);
}

__constant__ float filter[25] = {1, 4, 6, 4, 1, 4, 16, 24, 16, 4, 6, 24, 36, 24, 6, 4, 16, 24, 16, 4, 1, 4, 6, 4, 1};

__global__ void blur(float *out, const float *in, int width, int height)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height)
        return;
    float sum = 0;
    for (int dy = -2; dy <= 2; ++dy)
        for (int dx = -2; dx <= 2; ++dx) {
            int i = min(max(x + dx, 0), width - 1), j = min(max(y + dy, 0), height - 1);
            sum += filter[(dy + 2) * 5 + dx + 2] * in[j * width + i];
        }
    out[y * width + x] = sum / 256;
}

__global__ void batched_copy(float2 *out, const float2 *in, int columns, int from, int to, long long batch)
{
    // blockIdx.z: batch; blockIdx.y: row; pitches in elements.
    const float2 *row = in + blockIdx.z * batch + (size_t)blockIdx.y * from;
    float2 *there = out + blockIdx.z * batch + (size_t)blockIdx.y * to;
    if (I < columns)
        there[I] = row[I];
}
}
