// Races in shared memory, between warps and within one; and code that looks like it.

#define TILE 16

// wrong race no_barrier_after_store<<<1, 64>>>(new f4 64, ramp f4 64)
extern "C" __global__ void no_barrier_after_store(float *y, const float *x)
{
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];  // OTHER
    y[threadIdx.x] = s[63 - threadIdx.x];  // BUG
}

// wrong race no_barrier_before_refill<<<1, 64>>>(new f4 64, ramp f4 4x64)
extern "C" __global__ void no_barrier_before_refill(float *y, const float *x)
{
    __shared__ float s[64];
    float sum = 0.0f;
    for (int k = 0; k < 4; ++k) {
        s[threadIdx.x] = x[k * 64 + threadIdx.x];  // BUG
        __syncthreads();
        sum += s[63 - threadIdx.x];  // OTHER
    }
    y[threadIdx.x] = sum;
}

// wrong race tile_transpose<<<1, (16, 16)>>>(new f4 16x16, ramp f4 16x16)
extern "C" __global__ void tile_transpose(float *y, const float *x)
{
    __shared__ float tile[TILE][TILE + 1];
    int i = threadIdx.x, j = threadIdx.y;
    tile[j][i] = x[j * TILE + i];  // OTHER
    y[j * TILE + i] = tile[i][j];  // BUG
}

// wrong race warp_barrier_for_block<<<1, 64>>>(new f4 64, ramp f4 64)
extern "C" __global__ void warp_barrier_for_block(float *y, const float *x)
{
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];  // OTHER
    __syncwarp();
    y[threadIdx.x] = s[(threadIdx.x + 32) % 64];  // BUG
}

// wrong race reduction_without_barrier<<<1, 128>>>(new f4 1, ramp f4 128)
extern "C" __global__ void reduction_without_barrier(float *y, const float *x)
{
    __shared__ float s[128];
    int t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    for (int half = 64; half > 0; half /= 2)
        if (t < half)
            s[t] += s[t + half];  // BUG
    if (t == 0)
        *y = s[0];
}

// wrong race old_warp_reduction<<<1, 32>>>(new f4 1, ramp f4 32)
extern "C" __global__ void old_warp_reduction(float *y, const float *x)
{
    __shared__ float s[64];
    int t = threadIdx.x;
    s[t] = x[t];
    s[t + 32] = 0.0f;
    __syncwarp();
    s[t] += s[t + 16];  // BUG
    s[t] += s[t + 8];  // BUG
    if (t == 0)
        *y = s[0];
}

// wrong race histogram_without_atomics<<<1, 64>>>(zeros i4 8, ramp i4 64)
extern "C" __global__ void histogram_without_atomics(int *y, const int *x)
{
    __shared__ int bins[8];
    if (threadIdx.x < 8)
        bins[threadIdx.x] = 0;
    __syncthreads();
    bins[x[threadIdx.x] % 8] += 1;  // BUG
    __syncthreads();
    if (threadIdx.x < 8)
        y[threadIdx.x] = bins[threadIdx.x];
}

// wrong race atomic_meets_plain<<<1, 64>>>(new i4 64)
extern "C" __global__ void atomic_meets_plain(int *y)
{
    __shared__ int count;
    if (threadIdx.x == 0)
        count = 0;  // OTHER
    atomicAdd(&count, 1);  // BUG
    __syncthreads();
    y[threadIdx.x] = count;
}

// wrong race read_beside_atomics<<<1, 64>>>(new i4 64)
extern "C" __global__ void read_beside_atomics(int *y)
{
    __shared__ int count;
    if (threadIdx.x == 0)
        count = 0;
    __syncthreads();
    atomicAdd(&count, 1);  // OTHER
    y[threadIdx.x] = count;  // BUG
}

// wrong race all_write_their_own<<<1, 64>>>(new i4 64)
extern "C" __global__ void all_write_their_own(int *y)
{
    __shared__ int last;
    last = threadIdx.x;  // BUG
    __syncthreads();
    y[threadIdx.x] = last;
}

// wrong race shift_in_place<<<1, 64>>>(new f4 64, ramp f4 64)
extern "C" __global__ void shift_in_place(float *y, const float *x)
{
    __shared__ float s[65];
    int t = threadIdx.x;
    s[t] = x[t];
    if (t == 0)
        s[64] = 0.0f;
    __syncthreads();
    s[t] = s[t + 1];  // BUG
    __syncthreads();
    y[t] = s[t];
}

// wrong race scan_with_one_barrier<<<1, 64>>>(new f4 64, ramp f4 64)
extern "C" __global__ void scan_with_one_barrier(float *y, const float *x)
{
    __shared__ float s[64];
    int t = threadIdx.x;
    s[t] = x[t];
    for (int d = 1; d < 64; d *= 2) {
        __syncthreads();
        if (t >= d)
            s[t] += s[t - d];  // BUG
    }
    y[t] = s[t];
}

// wrong race shuffle_is_no_barrier<<<1, 32>>>(new f4 32, ramp f4 32)
extern "C" __global__ void shuffle_is_no_barrier(float *y, const float *x)
{
    __shared__ float s[32];
    int t = threadIdx.x;
    s[t] = x[t];  // OTHER
    float v = __shfl_xor_sync(0xffffffff, x[t], 1);
    y[t] = v + s[31 - t];  // BUG
}

// wrong race two_arrays_one_extern<<<1, 64, 512>>>(new f4 64, ramp f4 64)
extern "C" __global__ void two_arrays_one_extern(float *y, const float *x)
{
    extern __shared__ float room[];
    float *a = room, *b = room + 32;  // b should begin behind a's 64 elements
    int t = threadIdx.x;
    a[t] = x[t];  // OTHER
    b[t] = 2.0f * x[t];  // BUG
    __syncthreads();
    y[t] = a[t] + b[t];
}

// wrong race producer_without_barrier<<<1, 64>>>(new f4 32, ramp f4 32)
extern "C" __global__ void producer_without_barrier(float *y, const float *x)
{
    __shared__ float s[32];
    if (threadIdx.x < 32)
        s[threadIdx.x] = x[threadIdx.x];  // OTHER
    else
        y[threadIdx.x - 32] = s[threadIdx.x - 32];  // BUG
}

// wrong race teams_look_at_each_other<<<1, 128>>>(new f4 128, ramp f4 128)
extern "C" __global__ void teams_look_at_each_other(float *y, const float *x)
{
    __shared__ float s[128];
    int t = threadIdx.x;
    s[t] = x[t];  // OTHER
    asm volatile("bar.sync %0, 64;" :: "r"(1 + t / 64) : "memory");  // each team its own
    y[t] = s[127 - t];  // BUG
}

// wrong race team_overwrites_the_block<<<1, 128>>>(new f4 128, ramp f4 2x128)
extern "C" __global__ void team_overwrites_the_block(float *y, const float *x)
{
    __shared__ float s[128];
    int t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    float sum = s[127 - t];  // OTHER
    asm volatile("bar.sync %0, 64;" :: "r"(1 + t / 64) : "memory");
    s[t] = x[128 + t];  // BUG
    asm volatile("bar.sync %0, 64;" :: "r"(1 + t / 64) : "memory");
    y[t] = sum + s[t ^ 63];
}

// wrong race arrives_before_it_stores<<<1, 64>>>(new f4 32, ramp f4 32)
extern "C" __global__ void arrives_before_it_stores(float *y, const float *x)
{
    __shared__ float s[32];
    if (threadIdx.x < 32) {
        asm volatile("bar.arrive 1, 64;" ::: "memory");
        s[threadIdx.x] = x[threadIdx.x];  // OTHER
    } else {
        asm volatile("bar.sync 1, 64;" ::: "memory");
        y[threadIdx.x - 32] = s[63 - threadIdx.x];  // BUG
    }
}

// wrong race producer_waits_for_nobody<<<1, 64>>>(new f4 32, ramp f4 4x32)
extern "C" __global__ void producer_waits_for_nobody(float *y, const float *x)
{
    __shared__ float s[32];
    int t = threadIdx.x;
    float sum = 0.0f;
    for (int k = 0; k < 4; ++k)
        if (t < 32) {
            s[t] = x[32 * k + t];  // BUG
            asm volatile("bar.arrive 1, 64;" ::: "memory");
        } else {
            asm volatile("bar.sync 1, 64;" ::: "memory");
            sum += s[63 - t];  // BUG
        }
    if (t >= 32)
        y[t - 32] = sum;
}

// wrong race one_thread_overwrites<<<1, 64>>>(new f4 64, ramp f4 64)
extern "C" __global__ void one_thread_overwrites(float *y, const float *x)
{
    __shared__ float s[64];
    int t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    y[t] = s[0];  // OTHER
    if (t == 63)
        s[0] = 1.0f;  // BUG
}

// right barriers_both<<<1, 64>>>(new f4 64, ramp f4 4x64)
extern "C" __global__ void barriers_both(float *y, const float *x)
{
    __shared__ float s[64];
    float sum = 0.0f;
    for (int k = 0; k < 4; ++k) {
        s[threadIdx.x] = x[k * 64 + threadIdx.x];
        __syncthreads();
        sum += s[63 - threadIdx.x];
        __syncthreads();
    }
    y[threadIdx.x] = sum;
}

// right two_buffers_one_barrier<<<1, 64>>>(new f4 64, ramp f4 6x64)
extern "C" __global__ void two_buffers_one_barrier(float *y, const float *x)
{
    __shared__ float s[2][64];
    int t = threadIdx.x;
    float sum = 0.0f;
    s[0][t] = x[t];
    __syncthreads();
    for (int k = 1; k < 6; ++k) {
        s[k % 2][t] = x[k * 64 + t];
        sum += s[(k - 1) % 2][63 - t];
        __syncthreads();
    }
    y[t] = sum;
}

// right own_elements_only<<<1, 64>>>(new f4 64, ramp f4 64)
extern "C" __global__ void own_elements_only(float *y, const float *x)
{
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];
    s[threadIdx.x] += 1.0f;
    y[threadIdx.x] = s[threadIdx.x];
}

// right warp_reduction<<<1, 64>>>(new f4 2, ramp f4 64)
extern "C" __global__ void warp_reduction(float *y, const float *x)
{
    __shared__ float s[64];
    int t = threadIdx.x, lane = t % 32;
    s[t] = x[t];
    __syncwarp();
    for (int half = 16; half > 0; half /= 2) {
        float v = lane < half ? s[t + half] : 0.0f;
        __syncwarp();
        if (lane < half)
            s[t] += v;
        __syncwarp();
    }
    if (lane == 0)
        y[t / 32] = s[t];
}

// right half_warps<<<1, 32>>>(new f4 32, ramp f4 32)
extern "C" __global__ void half_warps(float *y, const float *x)
{
    __shared__ float s[32];
    int t = threadIdx.x;
    if (t < 16) {
        s[t] = x[t];
        __syncwarp(0x0000ffff);
        y[t] = s[15 - t];
    } else {
        s[t] = 2.0f * x[t];
        __syncwarp(0xffff0000);
        y[t] = s[47 - t];
    }
}

// right all_write_the_same<<<1, 64>>>(new i4 64, ramp i4 64)
extern "C" __global__ void all_write_the_same(int *y, const int *x)
{
    __shared__ int any;
    any = 0;
    __syncthreads();
    if (x[threadIdx.x] % 3 == 0)
        any = 1;
    __syncthreads();
    y[threadIdx.x] = any;
}

// right bytes_side_by_side<<<1, 64>>>(new u1 64)
extern "C" __global__ void bytes_side_by_side(unsigned char *y)
{
    __shared__ unsigned char s[64];
    s[threadIdx.x] = threadIdx.x;  // neighbors in one word, each its own byte
    __syncthreads();
    y[threadIdx.x] = s[63 - threadIdx.x];
}

// right shared_histogram<<<1, 64>>>(new i4 8, ramp i4 64)
extern "C" __global__ void shared_histogram(int *y, const int *x)
{
    __shared__ int bins[8];
    if (threadIdx.x < 8)
        bins[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(&bins[x[threadIdx.x] % 8], 1);
    __syncthreads();
    if (threadIdx.x < 8)
        y[threadIdx.x] = bins[threadIdx.x];
}

// right even_and_odd<<<1, 64>>>(new f4 64, ramp f4 64)
extern "C" __global__ void even_and_odd(float *y, const float *x)
{
    __shared__ float s[128];
    int t = threadIdx.x;
    s[2 * t] = x[t];  // interleaved, never the same
    s[2 * t + 1] = -x[t];
    __syncthreads();
    y[t] = s[t];
}

// right last_warp_reads<<<1, 96>>>(new f4 32, ramp f4 96)
extern "C" __global__ void last_warp_reads(float *y, const float *x)
{
    __shared__ float s[96];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    if (threadIdx.x >= 64)
        y[threadIdx.x - 64] = s[threadIdx.x - 64] + s[threadIdx.x - 32];
}

// right volatile_flag_in_block<<<1, 64>>>(new i4 64)
extern "C" __global__ void volatile_flag_in_block(int *y)
{
    __shared__ volatile int stop;
    if (threadIdx.x == 0)
        stop = 0;
    __syncthreads();
    if (threadIdx.x == 40)
        stop = 1;  // volatile on both sides: meant
    y[threadIdx.x] = stop >= 0;
}

// right reused_after_barrier<<<1, 64>>>(new f4 64, ramp f4 64)
extern "C" __global__ void reused_after_barrier(float *y, const float *x)
{
    __shared__ float s[64];
    int t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    float v = s[63 - t];
    __syncthreads();
    s[t] = v;
    y[t] = s[t];
}

// right vector_and_scalar<<<1, 32>>>(new f4 32, ramp f4 128)
extern "C" __global__ void vector_and_scalar(float *y, const float4 *x)
{
    __shared__ __align__(16) float s[128];
    ((float4 *)s)[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = s[threadIdx.x] + s[127 - threadIdx.x];
}
