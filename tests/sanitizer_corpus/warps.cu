// Shuffles and votes of lanes that are not there; and of part of a warp, which may be right.

// wrong shuffle broadcast_from_exited<<<1, 32>>>(new f4 32, ramp f4 32)
extern "C" __global__ void broadcast_from_exited(float *y, const float *x)
{
    int t = threadIdx.x;
    if (t < 4)
        return;
    y[t] = __shfl_sync(0xffffffff, x[t], 0);  // BUG
}

// wrong shuffle reduction_of_a_short_warp<<<1, 24>>>(new f4 1, ramp f4 24)
extern "C" __global__ void reduction_of_a_short_warp(float *y, const float *x)
{
    float v = x[threadIdx.x];
    v += __shfl_xor_sync(0xffffffff, v, 16);  // BUG
    for (int d = 8; d > 0; d /= 2)
        v += __shfl_xor_sync(0xffffffff, v, d);
    if (threadIdx.x == 0)
        *y = v;
}

// wrong shuffle tail_left_before_reduction<<<2, 32>>>(zeros f4 1, ramp f4 40, 40)
extern "C" __global__ void tail_left_before_reduction(float *y, const float *x, int n)
{
    int i = blockIdx.x * 32 + threadIdx.x;
    if (i >= n)
        return;
    float v = x[i];
    for (int d = 16; d > 0; d /= 2)
        v += __shfl_down_sync(0xffffffff, v, d);  // BUG
    if (threadIdx.x == 0)
        atomicAdd(y, v);
}

// wrong shuffle full_mask_in_a_branch<<<1, 32>>>(new f4 32, ramp f4 32)
extern "C" __global__ void full_mask_in_a_branch(float *y, const float *x)
{
    int t = threadIdx.x;
    float v = x[t];
    if (t < 16)
        v += __shfl_xor_sync(0xffffffff, v, 1);  // BUG
    __syncthreads();
    y[t] = v;
}

// wrong shuffle not_in_its_own_mask<<<1, 32>>>(new f4 32, ramp f4 32)
extern "C" __global__ void not_in_its_own_mask(float *y, const float *x)
{
    y[threadIdx.x] = __shfl_xor_sync(0x0000ffff, x[threadIdx.x], 1);  // BUG
}

// wrong shuffle uneven_trips<<<1, 32>>>(new f4 32, ramp f4 32)
extern "C" __global__ void uneven_trips(float *y, const float *x)
{
    float v = x[threadIdx.x];
    for (int k = 0; k < 1 + threadIdx.x % 2; ++k)
        v += __shfl_xor_sync(0xffffffff, v, 1);  // BUG
    y[threadIdx.x] = v;
}

// wrong shuffle vote_in_a_branch<<<1, 32>>>(new i4 32, ramp i4 32)
extern "C" __global__ void vote_in_a_branch(int *y, const int *x)
{
    int t = threadIdx.x, all = 0;
    if (x[t] % 2)
        all = __all_sync(0xffffffff, x[t] > 3);  // BUG
    __syncthreads();
    y[t] = all;
}

// right tree_in_half_a_warp<<<1, 32>>>(new f4 1, ramp f4 16)
extern "C" __global__ void tree_in_half_a_warp(float *y, const float *x)
{
    if (threadIdx.x < 16) {
        float v = x[threadIdx.x];
        for (int d = 8; d > 0; d /= 2)
            v += __shfl_down_sync(0x0000ffff, v, d);  // the far lanes' sums are not used
        if (threadIdx.x == 0)
            *y = v;
    }
}

// right neutral_tail<<<2, 32>>>(zeros f4 1, ramp f4 40, 40)
extern "C" __global__ void neutral_tail(float *y, const float *x, int n)
{
    int i = blockIdx.x * 32 + threadIdx.x;
    float v = i < n ? x[i] : 0.0f;
    for (int d = 16; d > 0; d /= 2)
        v += __shfl_down_sync(0xffffffff, v, d);
    if (threadIdx.x == 0)
        atomicAdd(y, v);
}

// right scan_of_a_warp<<<1, 32>>>(new f4 32, ramp f4 32)
extern "C" __global__ void scan_of_a_warp(float *y, const float *x)
{
    int lane = threadIdx.x;
    float v = x[lane];
    for (int d = 1; d < 32; d *= 2) {
        float left = __shfl_up_sync(0xffffffff, v, d);
        if (lane >= d)
            v += left;
    }
    y[lane] = v;
}

// right segments_of_eight<<<1, 32>>>(new f4 32, ramp f4 32)
extern "C" __global__ void segments_of_eight(float *y, const float *x)
{
    y[threadIdx.x] = __shfl_sync(0xffffffff, x[threadIdx.x], 0, 8);
}

// right mask_from_ballot<<<1, 32>>>(new i4 32, ramp i4 32)
extern "C" __global__ void mask_from_ballot(int *y, const int *x)
{
    int t = threadIdx.x, v = x[t];
    unsigned odd = __ballot_sync(0xffffffff, v % 2);
    y[t] = 0;
    if (v % 2)
        y[t] = __shfl_sync(odd, v, __ffs(odd) - 1);
}

// right each_half_its_mask<<<1, 32>>>(new f4 32, ramp f4 32)
extern "C" __global__ void each_half_its_mask(float *y, const float *x)
{
    int t = threadIdx.x;
    if (t < 16)
        y[t] = __shfl_xor_sync(0x0000ffff, x[t], 8);
    else
        y[t] = __shfl_xor_sync(0xffff0000, x[t], 4);
}

// right aggregated_atomic<<<2, 64>>>(zeros i4 1, ramp i4 128)
extern "C" __global__ void aggregated_atomic(int *count, const int *x)
{
    if (x[blockIdx.x * 64 + threadIdx.x] % 3 == 0) {
        unsigned here = __activemask();
        if (threadIdx.x % 32 == __ffs(here) - 1)
            atomicAdd(count, __popc(here));
    }
}

// right after_divergent_work<<<1, 32>>>(new f4 32, ramp f4 32)
extern "C" __global__ void after_divergent_work(float *y, const float *x)
{
    int t = threadIdx.x;
    float v = x[t];
    for (int k = 0; k < t % 5; ++k)
        v = v * 1.5f + 1.0f;
    y[t] = __shfl_sync(0xffffffff, v, 31 - t);
}

// right exited_lanes_are_not_read<<<1, 32>>>(new f4 16, ramp f4 32)
extern "C" __global__ void exited_lanes_are_not_read(float *y, const float *x)
{
    if (threadIdx.x >= 16)
        return;
    y[threadIdx.x] = __shfl_xor_sync(0xffffffff, x[threadIdx.x], 8);
}
