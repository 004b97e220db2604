// family: reordered floating-point sums
// target: reduce/sequential
// tries:  one warp adds from the end backwards, and then in the order of its lanes.
// ours:   pass
//
// launch backwards<<<(1), (32), 0>>>(y, x, N)

extern "C" __global__ void backwards(float *y, const float *x, int N)
{
    float sum = 0;
    for (int i = N - 1 - (int)threadIdx.x; i >= 0; i -= 32)
        sum += x[i];
    float total = 0;
    for (int lane = 0; lane < 32; ++lane)
        total += __shfl_sync(0xffffffff, sum, lane);
    if (threadIdx.x == 0)
        y[0] = total;
}
