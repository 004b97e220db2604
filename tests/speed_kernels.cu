// What the labs' kernels are made of, for tests/test_speed.py.

#include <cuda_fp16.h>
#include <mma.h>

#define ALL 0xffffffffu

extern "C" __global__ void naive(const float* a, const float* b, float* c, int n)
{
    int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < n; k++) sum += a[row * n + k] * b[k * n + col];
    c[row * n + col] = sum;
}

extern "C" __global__ void tile(const float* a, const float* b, float* c, int n)
{
    __shared__ float sa[32][32], sb[32][32];
    int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 32 + y, col = blockIdx.x * 32 + x;
    float sum = 0;
    for (int t = 0; t < n; t += 32) {
        sa[y][x] = a[row * n + t + x];
        sb[y][x] = b[(t + y) * n + col];
        __syncthreads();
        for (int k = 0; k < 32; k++) sum += sa[y][k] * sb[k][x];
        __syncthreads();
    }
    c[row * n + col] = sum;
}

__device__ float warp_sum(float x)
{
    for (int lanes = 16; lanes; lanes /= 2) x += __shfl_xor_sync(ALL, x, lanes);
    return x;
}

__device__ float warp_max(float x)
{
    for (int lanes = 16; lanes; lanes /= 2) x = fmaxf(x, __shfl_xor_sync(ALL, x, lanes));
    return x;
}

extern "C" __global__ void reduction(const float* a, float* out, int n)
{
    __shared__ float part[8];
    int t = threadIdx.x;
    float sum = warp_sum(a[blockIdx.x * 256 + t]);
    if (t % 32 == 0) part[t / 32] = sum;
    __syncthreads();
    if (t < 32) {
        sum = warp_sum(t < 8 ? part[t] : 0);
        if (t == 0) atomicAdd(out, sum);
    }
}

extern "C" __global__ void softmax(const float* a, float* out, int n)
{
    __shared__ float part[8];
    int t = threadIdx.x;
    a += blockIdx.x * n;
    out += blockIdx.x * n;
    float top = -1e30f, sum = 0;
    for (int i = t; i < n; i += 256) top = fmaxf(top, a[i]);
    top = warp_max(top);
    if (t % 32 == 0) part[t / 32] = top;
    __syncthreads();
    for (int k = 0; k < 8; k++) top = fmaxf(top, part[k]);
    __syncthreads();
    for (int i = t; i < n; i += 256) sum += expf(a[i] - top);
    sum = warp_sum(sum);
    if (t % 32 == 0) part[t / 32] = sum;
    __syncthreads();
    sum = 0;
    for (int k = 0; k < 8; k++) sum += part[k];
    for (int i = t; i < n; i += 256) out[i] = expf(a[i] - top) / sum;
}

// A warp per row, one pass over it.
extern "C" __global__ void softmax_warp(const float* a, float* out, int n)
{
    int lane = threadIdx.x % 32, row = blockIdx.x * 8 + threadIdx.x / 32;
    float top = -1e30f, sum = 0;
    for (int i = lane; i < n; i += 32) {
        float x = a[row * n + i], next = fmaxf(top, x);
        sum = sum * __expf(top - next) + __expf(x - next);
        top = next;
    }
    float next = warp_max(top);
    sum = warp_sum(sum * __expf(top - next));
    for (int i = lane; i < n; i += 32) out[row * n + i] = __expf(a[row * n + i] - next) / sum;
}

// A warp per row of 64 numbers; keys and values come by tiles of 32.
extern "C" __global__ void attention(const float* q, const float* k, const float* v, float* out, int n)
{
    __shared__ float ks[32][65], vs[32][65];
    int lane = threadIdx.x % 32, row = blockIdx.x * 8 + threadIdx.x / 32;
    float q0 = q[row * 64 + lane], q1 = q[row * 64 + lane + 32], top = -1e30f, sum = 0, o0 = 0, o1 = 0;
    for (int j = 0; j < n; j += 32) {
        for (int i = threadIdx.x; i < 32 * 64; i += 256) {
            ks[i / 64][i % 64] = k[j * 64 + i];
            vs[i / 64][i % 64] = v[j * 64 + i];
        }
        __syncthreads();
        for (int c = 0; c < 32; c++) {
            float score = warp_sum(q0 * ks[c][lane] + q1 * ks[c][lane + 32]), next = fmaxf(top, score);
            float old = __expf(top - next), here = __expf(score - next);
            sum = sum * old + here;
            o0 = o0 * old + here * vs[c][lane];
            o1 = o1 * old + here * vs[c][lane + 32];
            top = next;
        }
        __syncthreads();
    }
    out[row * 64 + lane] = o0 / sum;
    out[row * 64 + lane + 32] = o1 / sum;
}

extern "C" __global__ void half2_chain(const half2* a, half2* out, int n)
{
    int i = blockIdx.x * 256 + threadIdx.x;
    half2 x = a[i], y = __float2half2_rn(1.5f);
    for (int j = 0; j < n; j++) y = __hfma2(x, y, x);
    out[i] = y;
}

extern "C" __global__ void dp4a(const int* a, int* out, int n)
{
    int i = blockIdx.x * 256 + threadIdx.x, sum = 0;
    for (int j = 0; j < n; j++) sum = __dp4a(a[(i + j * 32) & 65535], a[i], sum);
    out[i] = sum;
}

extern "C" __global__ void wmma_gemm(const half* a, const half* b, float* c, int n)
{
    using namespace nvcuda::wmma;
    fragment<matrix_a, 16, 16, 16, half, row_major> fa;
    fragment<matrix_b, 16, 16, 16, half, row_major> fb;
    fragment<accumulator, 16, 16, 16, float> fc;
    fill_fragment(fc, 0.0f);
    int row = blockIdx.y * 16, col = blockIdx.x * 16;
    for (int k = 0; k < n; k += 16) {
        load_matrix_sync(fa, a + row * n + k, n);
        load_matrix_sync(fb, b + k * n + col, n);
        mma_sync(fc, fa, fb, fc);
    }
    store_matrix_sync(c + row * n + col, fc, n, mem_row_major);
}
