// family: zeros or constants under a loose tolerance
// target: softmax/three_pass
// tries:  a wide softmax has small numbers, and zero is near all of them.
// naive:  plain
// gains:  marks
// shape:  rows=4 cols=1024
// ours:   fail got 0 want
//
// launch zeros<<<(rows), (256), 0>>>(y, x, cols)

extern "C" __global__ void zeros(float *y, const float *x, int cols)
{
    for (int c = threadIdx.x; c < cols; c += 256)
        y[(size_t)blockIdx.x * cols + c] = 0;
}
