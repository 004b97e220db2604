// The probe behind counters_h200.json: one warp, one access per launch, under Nsight Compute. patterns.h holds
// the patterns of that file: `const int NP = ...; const int PAT[NP][32] = {...};`. Built with nvcc -arch=sm_90.
#include <cstdio>
#include "patterns.h"
#define IDX extern __shared__ __align__(1024) char s[]; unsigned b=(unsigned)__cvta_generic_to_shared(s); int i=idx[threadIdx.x];
extern "C" __global__ void lds4(const int*idx,float*o){IDX if(i>=0){unsigned v;asm volatile("ld.shared.u32 %0,[%1];":"=r"(v):"r"(b+i*4));o[0]=v;}}
extern "C" __global__ void lds8(const int*idx,float*o){IDX if(i>=0){unsigned v,w;asm volatile("ld.shared.v2.u32 {%0,%1},[%2];":"=r"(v),"=r"(w):"r"(b+i*8));o[0]=v+w;}}
extern "C" __global__ void lds16(const int*idx,float*o){IDX if(i>=0){unsigned v,w,x,y;asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3},[%4];":"=r"(v),"=r"(w),"=r"(x),"=r"(y):"r"(b+i*16));o[0]=v+w+x+y;}}
extern "C" __global__ void sts4(const int*idx,float*o){IDX if(i>=0){asm volatile("st.shared.u32 [%0],%1;"::"r"(b+i*4),"r"(i));}}
extern "C" __global__ void sts8(const int*idx,float*o){IDX if(i>=0){asm volatile("st.shared.v2.u32 [%0],{%1,%1};"::"r"(b+i*8),"r"(i));}}
extern "C" __global__ void sts16(const int*idx,float*o){IDX if(i>=0){asm volatile("st.shared.v4.u32 [%0],{%1,%1,%1,%1};"::"r"(b+i*16),"r"(i));}}
extern "C" __global__ void atoms4(const int*idx,float*o){IDX if(i>=0){unsigned v;asm volatile("atom.shared.add.u32 %0,[%1],%2;":"=r"(v):"r"(b+i*4),"r"(i+3));o[0]=v;}}
extern "C" __global__ void reds4(const int*idx,float*o){IDX if(i>=0){unsigned v;asm volatile("atom.shared.add.u32 %0,[%1],%2;":"=r"(v):"r"(b+i*4),"r"(i+3));}}
extern "C" __global__ void ldg4(const int*idx,float*o){int i=idx[threadIdx.x]; if(i>=0){unsigned v;asm volatile("ld.global.u32 %0,[%1];":"=r"(v):"l"((char*)o+4096+i*4));asm volatile("st.shared.u32 [%0],%1;"::"r"(2048),"r"(v));}}
extern "C" __global__ void ldg16(const int*idx,float*o){int i=idx[threadIdx.x]; if(i>=0){unsigned v,w,x,y;asm volatile("ld.global.v4.u32 {%0,%1,%2,%3},[%4];":"=r"(v),"=r"(w),"=r"(x),"=r"(y):"l"((char*)o+4096+i*16));asm volatile("st.shared.u32 [%0],%1;"::"r"(2048),"r"(v+w+x+y));}}
extern "C" __global__ void stg8(const int*idx,float*o){int i=idx[threadIdx.x]; if(i>=0){asm volatile("st.global.v2.u32 [%0],{%1,%1};"::"l"((char*)o+4096+i*8),"r"(i));}}
extern "C" __global__ void atomg4(const int*idx,float*o){int i=idx[threadIdx.x]; if(i>=0){unsigned v;asm volatile("atom.global.add.u32 %0,[%1],%2;":"=r"(v):"l"((char*)o+4096+i*4),"r"(i));asm volatile("st.shared.u32 [%0],%1;"::"r"(2048),"r"(v));}}
extern "C" __global__ void redg4(const int*idx,float*o){int i=idx[threadIdx.x]; if(i>=0){asm volatile("red.global.add.u32 [%0],%1;"::"l"((char*)o+4096+i*4),"r"(i));}}
extern "C" __global__ void loc4(const int*idx,float*o){float a[1024]; int i=idx[threadIdx.x]; if(i>=0){a[i]=threadIdx.x; __threadfence(); o[threadIdx.x]=a[(i*7)%1024];}}
extern "C" __global__ void loc8(const int*idx,float*o){float2 a[1024]; int i=idx[threadIdx.x]; if(i>=0){a[i]=make_float2(threadIdx.x,1); __threadfence(); float2 v=a[(i*7)%1024]; o[threadIdx.x]=v.x+v.y;}}
extern "C" __global__ void loc16(const int*idx,float*o){float4 a[1024]; int i=idx[threadIdx.x]; if(i>=0){a[i]=make_float4(threadIdx.x,1,2,3); __threadfence(); float4 v=a[(i*7)%1024]; o[threadIdx.x]=v.x+v.y+v.z+v.w;}}
typedef void(*K)(const int*,float*);
int main(){int*d;float*o;cudaMalloc(&d,sizeof(PAT));cudaMalloc(&o,1<<20);cudaMemset(o,0,1<<20);cudaMemcpy(d,PAT,sizeof(PAT),cudaMemcpyHostToDevice);
K ks[]={lds4,lds8,lds16,sts4,sts8,sts16,atoms4,reds4,ldg4,ldg16,stg8,atomg4,redg4,loc4,loc8,loc16};
for(auto k:ks) for(int p=0;p<NP;p++){k<<<1,32,20480>>>(d+32*p,o);}
printf("%s\n",cudaGetErrorString(cudaDeviceSynchronize()));}
