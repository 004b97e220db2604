// Kernels that make counting hard, each for a reason of its own. They are run under Nsight Compute and on the emulator,
// and the counters compared (labkit fidelity corpus).

#include <cuda_fp16.h>

#define I (blockIdx.x * blockDim.x + threadIdx.x)

extern "C" {

// --- global memory: strides, offsets, widths, structures ---

__global__ void strided(float *out, const float *in, int stride, int n)
{
    if (I < n)
        out[I] = in[(size_t)I * stride];
}

__global__ void strided_store(float *out, const float *in, int stride, int n)
{
    if (I < n)
        out[(size_t)I * stride] = in[I];
}

__global__ void offset(float *out, const float *in, int shift, int n)
{
    if (I < n)
        out[I + shift] = in[I + shift];
}

__global__ void bytes(unsigned char *out, const unsigned char *in, int n)
{
    if (I < n)
        out[I] = in[I] + 1;
}

__global__ void halves(__half *out, const __half *in, int n)
{
    if (I < n)
        out[I] = __hadd(in[I], in[I]);
}

__global__ void doubles(double *out, const double *in, int stride, int n)
{
    if (I < n)
        out[I] = fma(in[(size_t)I * stride], 2.0, 1.0);
}

__global__ void pairs(float2 *out, const float2 *in, int stride, int n)
{
    if (I < n)
        out[I] = in[(size_t)I * stride];
}

__global__ void quads(float4 *out, const float4 *in, int stride, int n)
{
    if (I < n)
        out[I] = in[(size_t)I * stride];
}

struct Point { float x, y, z; };

__global__ void structures(Point *out, const Point *in, int n)
{
    if (I < n) {
        Point p = in[I];
        out[I] = {p.z, p.x, p.y};
    }
}

struct Particle { float x, y, z, w, a, b, c, d; };

__global__ void one_field(float *out, const Particle *in, int n)
{
    if (I < n)
        out[I] = in[I].y;
}

__global__ void broadcast(float *out, const float *in, int group, int n)
{
    if (I < n)
        out[I] = in[I / group];
}

__global__ void gather(float *out, const float *in, const int *where, int n)
{
    if (I < n)
        out[I] = in[where[I]];
}

__global__ void scatter(float *out, const float *in, const int *where, int n)
{
    if (I < n)
        out[where[I]] = in[I];
}

__global__ void reversed(float *out, const float *in, int n)
{
    if (I < n)
        out[I] = in[n - 1 - I];
}

// --- shared memory: strides, widths, padding, swizzles ---

__global__ void shared_stride(float *out, const float *in, int stride)
{
    __shared__ float tile[32 * 33 + 32];
    for (int i = threadIdx.x; i < 32 * 33 + 32; i += blockDim.x)
        tile[i] = in[i];
    __syncthreads();
    out[I] = tile[threadIdx.x % 32 * stride + threadIdx.x / 32];
}

__global__ void shared_pairs(float2 *out, const float2 *in, int stride)
{
    __shared__ float2 tile[1024];
    for (int i = threadIdx.x; i < 1024; i += blockDim.x)
        tile[i] = in[i];
    __syncthreads();
    out[I] = tile[threadIdx.x * stride % 1024];
}

__global__ void shared_quads(float4 *out, const float4 *in, int stride)
{
    __shared__ float4 tile[512];
    for (int i = threadIdx.x; i < 512; i += blockDim.x)
        tile[i] = in[i];
    __syncthreads();
    out[I] = tile[threadIdx.x * stride % 512];
}

__global__ void transpose(float *out, const float *in, int n)
{
    __shared__ float tile[32][32];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    tile[threadIdx.y][threadIdx.x] = x < n && y < n ? in[y * n + x] : 0;
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x, y = blockIdx.x * 32 + threadIdx.y;
    if (x < n && y < n)
        out[y * n + x] = tile[threadIdx.x][threadIdx.y];
}

__global__ void transpose_padded(float *out, const float *in, int n)
{
    __shared__ float tile[32][33];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    tile[threadIdx.y][threadIdx.x] = x < n && y < n ? in[y * n + x] : 0;
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x, y = blockIdx.x * 32 + threadIdx.y;
    if (x < n && y < n)
        out[y * n + x] = tile[threadIdx.x][threadIdx.y];
}

__global__ void transpose_swizzled(float *out, const float *in, int n)
{
    __shared__ float tile[32][32];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    tile[threadIdx.y][threadIdx.x ^ threadIdx.y] = x < n && y < n ? in[y * n + x] : 0;
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x, y = blockIdx.x * 32 + threadIdx.y;
    if (x < n && y < n)
        out[y * n + x] = tile[threadIdx.x][threadIdx.y ^ threadIdx.x];
}

__global__ void transpose_naive(float *out, const float *in, int n)
{
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    if (x < n && y < n)
        out[x * n + y] = in[y * n + x];
}

// --- control flow ---

__global__ void divergent_loop(float *out, const float *in, int n)
{
    float sum = 0;
    if (I < n)
        for (int j = 0; j < (int)(I % 7); ++j)
            sum = sum * 0.5f + in[I + j];
    if (I < n)
        out[I] = sum;
}

__global__ void two_ways(float *out, const float *in, int n)
{
    if (I >= n)
        return;
    if (in[I] > 0)
        out[I] = in[I + 1] * 3 + in[I + 2];
    else
        out[I] = in[I + 3] - in[I + 4] * in[I + 5];
}

__global__ void early_exit(float *out, const float *in, int n)
{
    if (I % 3 == 1 || I >= n)
        return;
    out[I] = in[I] + 1;
}

// --- warps that work together ---

__global__ void warp_sum(float *out, const float *in, int n)
{
    float v = I < n ? in[I] : 0;
    for (int d = 16; d; d /= 2)
        v += __shfl_down_sync(0xffffffff, v, d);
    if (threadIdx.x % 32 == 0)
        out[I / 32] = v;
}

__global__ void block_sum(float *out, const float *in, int n)
{
    __shared__ float part[256];
    part[threadIdx.x] = I < n ? in[I] : 0;
    __syncthreads();
    for (int d = blockDim.x / 2; d; d /= 2) {
        if (threadIdx.x < d)
            part[threadIdx.x] += part[threadIdx.x + d];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        out[blockIdx.x] = part[0];
}

__global__ void softmax_rows(float *out, const float *in, int n)
{
    // One warp per row.
    const float *row = in + (size_t)blockIdx.x * n;
    float top = -1e30f, sum = 0;
    for (int j = threadIdx.x; j < n; j += 32)
        top = fmaxf(top, row[j]);
    for (int d = 16; d; d /= 2)
        top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, d));
    for (int j = threadIdx.x; j < n; j += 32)
        sum += __expf(row[j] - top);
    for (int d = 16; d; d /= 2)
        sum += __shfl_xor_sync(0xffffffff, sum, d);
    for (int j = threadIdx.x; j < n; j += 32)
        out[(size_t)blockIdx.x * n + j] = __expf(row[j] - top) * __frcp_rn(sum);
}

// --- atomics ---

__global__ void count(int *bins, const int *in, int n)
{
    if (I < n)
        atomicAdd(&bins[in[I]], 1);
}

__global__ void count_shared(int *bins, const int *in, int n)
{
    __shared__ int mine[64];
    if (threadIdx.x < 64)
        mine[threadIdx.x] = 0;
    __syncthreads();
    if (I < n)
        atomicAdd(&mine[in[I]], 1);
    __syncthreads();
    if (threadIdx.x < 64)
        atomicAdd(&bins[threadIdx.x], mine[threadIdx.x]);
}

__global__ void tickets(int *out, int *counter, int n)
{
    if (I < n)
        out[I] = atomicAdd(&counter[I % 8], 2);
}

__global__ void sum_floats(float *out, const float *in, int n)
{
    if (I < n)
        atomicAdd(&out[I % 5], in[I]);
}

__global__ void largest(int *out, const int *in, int n)
{
    if (I < n)
        atomicMax(&out[I % 64], in[I]);
}

// --- local memory, constants, other arithmetic ---

__global__ void local_array(float *out, const float *in, const int *where, int n)
{
    float mine[16];
    if (I >= n)
        return;
    for (int j = 0; j < 16; ++j)
        mine[j] = in[(I + j) % n];
    out[I] = mine[where[I] & 15];
}

__constant__ float weights[8] = {1, 2, 3, 4, 5, 6, 7, 8};

__global__ void stencil(float *out, const float *in, int n)
{
    float sum = 0;
    if (I + 8 < n) {
        for (int j = 0; j < 8; ++j)
            sum += weights[j] * in[I + j];
        out[I] = sum;
    }
}

__global__ void half_pairs(__half2 *out, const __half2 *a, const __half2 *b, int n)
{
    if (I < n)
        out[I] = __hfma2(a[I], b[I], __hadd2(a[I], b[I]));
}

__global__ void matvec(float *out, const float *A, const float *x, int rows, int columns)
{
    int row = I / 32;
    float sum = 0;
    if (row < rows)
        for (int k = threadIdx.x % 32; k < columns; k += 32)
            sum = fmaf(A[(size_t)row * columns + k], x[k], sum);
    for (int d = 16; d; d /= 2)
        sum += __shfl_down_sync(0xffffffff, sum, d);
    if (row < rows && threadIdx.x % 32 == 0)
        out[row] = sum;
}

// --- copies that land later ---

__global__ void async_copy(float *out, const float *in, int n)
{
    __shared__ __align__(16) float tile[1024];
    unsigned to = (unsigned)__cvta_generic_to_shared(tile + 4 * threadIdx.x);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(in + 4 * I));
    asm volatile("cp.async.commit_group;\ncp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    for (int j = threadIdx.x; j < 1024; j += blockDim.x)
        out[blockIdx.x * 1024 + j] = tile[1023 - j];
}
}
