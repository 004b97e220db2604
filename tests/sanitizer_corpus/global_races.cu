// Races in global memory, within a block and between blocks that nothing orders; and flags that do order them.

// wrong race neighbor_block<<<4, 32>>>(new f4 128, ramp f4 128)
extern "C" __global__ void neighbor_block(float *y, const float *x)
{
    int i = blockIdx.x * 32 + threadIdx.x;
    y[i] = x[i];  // OTHER
    __syncthreads();
    if (i > 0)
        y[i] += y[i - 1];  // BUG
}

// wrong race in_place_stencil<<<4, 32>>>(ramp f4 130)
extern "C" __global__ void in_place_stencil(float *x)
{
    int i = 1 + blockIdx.x * 32 + threadIdx.x;
    x[i] = x[i + 1] - x[i - 1];  // BUG
}

// wrong race sum_without_atomic<<<8, 32>>>(zeros f4 1, ramp f4 256)
extern "C" __global__ void sum_without_atomic(float *sum, const float *x)
{
    if (threadIdx.x == 0)
        *sum += x[blockIdx.x];  // BUG
}

// wrong race overlapping_tiles<<<4, 32>>>(new i4 100)
extern "C" __global__ void overlapping_tiles(int *y)
{
    int i = blockIdx.x * 16 + threadIdx.x;  // tiles of 32 every 16
    y[i] = blockIdx.x;  // BUG
}

// wrong race global_without_barrier<<<2, 64>>>(new f4 128, ramp f4 128)
extern "C" __global__ void global_without_barrier(float *y, const float *x)
{
    int base = blockIdx.x * 64, t = threadIdx.x;
    y[base + t] = x[base + t];  // OTHER
    float v = y[base + 63 - t];  // BUG
    __syncthreads();
    y[base + t] = v;
}

// wrong race last_block_without_fence<<<4, 32>>>(new f4 1, new f4 4, zeros i4 1, ramp f4 128)
extern "C" __global__ void last_block_without_fence(float *sum, float *part, int *done, const float *x)
{
    if (threadIdx.x == 0) {
        float s = 0.0f;
        for (int k = 0; k < 32; ++k)
            s += x[blockIdx.x * 32 + k];
        part[blockIdx.x] = s;  // OTHER
        if (atomicAdd(done, 1) == gridDim.x - 1)
            *sum = part[0] + part[1] + part[2] + part[3];  // BUG
    }
}

// wrong race last_block_without_flag<<<4, 32>>>(new f4 1, new f4 4, ramp f4 128)
extern "C" __global__ void last_block_without_flag(float *sum, float *part, const float *x)
{
    if (threadIdx.x == 0) {
        part[blockIdx.x] = x[blockIdx.x * 32];  // OTHER
        __threadfence();
        if (blockIdx.x == gridDim.x - 1)
            *sum = part[0] + part[1] + part[2] + part[3];  // BUG
    }
}

// wrong race flag_without_barrier<<<2, 64>>>(new f4 64, new f4 64, zeros i4 1, ramp f4 64)
extern "C" __global__ void flag_without_barrier(float *y, float *box, int *flag, const float *x)
{
    int t = threadIdx.x;
    if (blockIdx.x == 0) {
        box[t] = x[t];  // OTHER
        __threadfence();
        if (t == 0)
            atomicExch(flag, 1);  // the other warp may not have written yet
    } else {
        if (t == 0)
            while (atomicAdd(flag, 0) == 0) {}
        __syncthreads();
        y[t] = box[t];  // BUG
    }
}

// wrong race flag_without_fence<<<2, 32>>>(new f4 32, new f4 32, zeros i4 1, ramp f4 32)
extern "C" __global__ void flag_without_fence(float *y, float *box, int *flag, const float *x)
{
    int t = threadIdx.x;
    if (blockIdx.x == 0) {
        box[t] = x[t];  // OTHER
        __syncthreads();
        if (t == 0)
            atomicExch(flag, 1);
    } else {
        if (t == 0)
            while (atomicAdd(flag, 0) == 0) {}
        __syncthreads();
        y[t] = box[t];  // BUG
    }
}

// wrong race atomics_beside_store<<<4, 32>>>(zeros i4 1)
extern "C" __global__ void atomics_beside_store(int *count)
{
    if (blockIdx.x == 0 && threadIdx.x == 0)
        *count = 0;  // OTHER
    atomicAdd(count, 1);  // BUG
}

// wrong race transpose_in_place<<<4, 16>>>(ramp f4 4x16)
extern "C" __global__ void transpose_in_place(float *x)
{
    int i = blockIdx.x * 16 + threadIdx.x, j = 63 - i;
    float v = x[j];
    __syncthreads();
    x[i] = v;  // BUG
}

// wrong race fence_is_no_barrier<<<1, 64>>>(new f4 64, ramp f4 64)
extern "C" __global__ void fence_is_no_barrier(float *y, const float *x)
{
    y[threadIdx.x] = x[threadIdx.x];  // OTHER
    __threadfence();
    float v = y[63 - threadIdx.x];  // BUG
    __syncthreads();
    y[threadIdx.x] = v;
}

// right disjoint<<<4, 32>>>(new f4 128, ramp f4 128)
extern "C" __global__ void disjoint(float *y, const float *x)
{
    int i = blockIdx.x * 32 + threadIdx.x;
    y[i] = x[i];
    y[i] += 1.0f;
}

// right strided_disjoint<<<4, 32>>>(new f4 128, ramp f4 128)
extern "C" __global__ void strided_disjoint(float *y, const float *x)
{
    int i = threadIdx.x * 4 + blockIdx.x;
    y[i] = x[i];
}

// right block_exchange<<<2, 64>>>(new f4 128, ramp f4 128)
extern "C" __global__ void block_exchange(float *y, const float *x)
{
    int base = blockIdx.x * 64, t = threadIdx.x;
    y[base + t] = x[base + t];
    __syncthreads();
    float v = y[base + 63 - t];
    __syncthreads();
    y[base + t] = v;
}

// right atomic_sum<<<8, 32>>>(zeros f4 1, ramp f4 256)
extern "C" __global__ void atomic_sum(float *sum, const float *x)
{
    atomicAdd(sum, x[blockIdx.x * 32 + threadIdx.x]);
}

// right last_block<<<4, 32>>>(new f4 1, new f4 4, zeros i4 1, ramp f4 128)
extern "C" __global__ void last_block(float *sum, volatile float *part, unsigned *done, const float *x)
{
    __shared__ bool last;
    float v = x[blockIdx.x * 32 + threadIdx.x];
    for (int d = 16; d > 0; d /= 2)
        v += __shfl_down_sync(0xffffffff, v, d);
    if (threadIdx.x == 0) {
        part[blockIdx.x] = v;
        __threadfence();
        last = atomicInc(done, gridDim.x) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        float s = 0.0f;
        for (int b = 0; b < gridDim.x; ++b)
            s += part[b];
        *sum = s;
    }
}

// right last_block_all_threads<<<4, 64>>>(new f4 64, new f4 4x64, zeros i4 1, ramp f4 4x64)
extern "C" __global__ void last_block_all_threads(float *y, float *part, int *done, const float *x)
{
    __shared__ bool last;
    int t = threadIdx.x;
    part[blockIdx.x * 64 + t] = 2.0f * x[blockIdx.x * 64 + t];
    __threadfence();  // each its own part
    __syncthreads();
    if (t == 0)
        last = atomicAdd(done, 1) == gridDim.x - 1;
    __syncthreads();
    if (!last)
        return;
    float s = 0.0f;
    for (int b = 0; b < gridDim.x; ++b)
        s += part[b * 64 + (t + 1) % 64];
    y[t] = s;
}

// right flag_between_blocks<<<2, 64>>>(new f4 64, new f4 64, zeros i4 1, ramp f4 64)
extern "C" __global__ void flag_between_blocks(float *y, float *box, int *flag, const float *x)
{
    int t = threadIdx.x;
    if (blockIdx.x == 0) {
        box[t] = x[t];
        __threadfence();
        __syncthreads();
        if (t == 0)
            atomicExch(flag, 1);
    } else {
        if (t == 0)
            while (atomicAdd(flag, 0) == 0) {}
        __syncthreads();
        __threadfence();
        y[t] = box[63 - t];
    }
}

// right volatile_flag<<<2, 32>>>(new f4 32, new f4 32, zeros i4 1, ramp f4 32)
extern "C" __global__ void volatile_flag(float *y, float *box, volatile int *flag, const float *x)
{
    int t = threadIdx.x;
    if (blockIdx.x == 0) {
        box[t] = x[t];
        __threadfence();
        __syncthreads();
        if (t == 0)
            *flag = 1;
    } else {
        while (*flag == 0) {}
        __threadfence();
        y[t] = box[31 - t];
    }
}

// right grid_barrier<<<4, 32>>>(new f4 128, zeros i4 1, ramp f4 128)
extern "C" __global__ void grid_barrier(float *y, int *arrived, const float *x)
{
    int i = blockIdx.x * 32 + threadIdx.x;
    y[i] = x[i];
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(arrived, 1);
        while (atomicAdd(arrived, 0) < gridDim.x) {}
        __threadfence();
    }
    __syncthreads();
    float v = y[127 - i];
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(arrived, 1);
        while (atomicAdd(arrived, 0) < 2 * gridDim.x) {}
        __threadfence();
    }
    __syncthreads();
    y[i] = v;
}

// right chain_of_blocks<<<4, 32>>>(new f4 4, zeros i4 4, ramp f4 4)
extern "C" __global__ void chain_of_blocks(float *sum, int *ready, const float *x)
{
    if (threadIdx.x)
        return;
    int b = blockIdx.x;
    float before = 0.0f;
    if (b > 0) {
        while (atomicAdd(&ready[b - 1], 0) == 0) {}
        __threadfence();
        before = b > 1 ? sum[b - 1] + 0.0f * sum[b - 2] : sum[b - 1];  // two links back, too
    }
    sum[b] = before + x[b];
    __threadfence();
    atomicExch(&ready[b], 1);
}

// right same_value_from_all<<<4, 32>>>(zeros i4 1, ramp i4 128)
extern "C" __global__ void same_value_from_all(int *found, const int *x)
{
    if (x[blockIdx.x * 32 + threadIdx.x] % 7 == 3)
        *found = 1;
}

// right claimed_slots<<<4, 32>>>(new i4 128, zeros i4 1, ramp i4 128)
extern "C" __global__ void claimed_slots(int *list, int *count, const int *x)
{
    int v = x[blockIdx.x * 32 + threadIdx.x];
    if (v % 2)
        list[atomicAdd(count, 1)] = v;  // an element of one's own
}

// right lock<<<4, 32>>>(zeros i4 1, zeros i4 1)
extern "C" __global__ void lock(int *total, int *taken)
{
    if (threadIdx.x)
        return;
    while (atomicCAS(taken, 0, 1) != 0) {}
    __threadfence();
    *total += 1;
    __threadfence();
    atomicExch(taken, 0);
}

// right bytes_of_two_blocks<<<2, 32>>>(new u1 64)
extern "C" __global__ void bytes_of_two_blocks(unsigned char *y)
{
    y[2 * threadIdx.x + blockIdx.x] = threadIdx.x;
}

// right release_acquire<<<2, 32>>>(new i4 1, new i4 1, zeros i4 1)
extern "C" __global__ void release_acquire(int *y, int *box, int *flag)
{
    if (threadIdx.x)
        return;
    if (blockIdx.x == 0) {
        *box = 42;
        asm volatile("st.release.gpu.global.s32 [%0], 1;" ::"l"(flag) : "memory");
    } else {
        int seen = 0;
        while (!seen)
            asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
        *y = *box;
    }
}
