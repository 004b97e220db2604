// family: #include of grader files
// target: vector_add/grid
// tries:  includes a file of the grader's, so that the compiler's message shows it.
// naive:  plain
// gains:  secret
// ours:   fail .
//
// launch add<<<((N + 255) / 256), (256), 0>>>(C, A, B, N)

#include "@SECRET@"

extern "C" __global__ void add(float *C, const float *A, const float *B, int N)
{
}
