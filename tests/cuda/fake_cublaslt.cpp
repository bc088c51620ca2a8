// A library with the functions of cuBLASLt that are used; it notes what it was asked for and multiplies nothing.
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace {
struct Descriptor {
  int64_t value[40];
};
struct Heuristic {
  uint64_t algorithm[8];
  size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
};
}  // namespace

extern "C" {
// Layouts of the last product: type, rows, columns, leading dimension of its three matrices; transposes; runs.
int64_t fake_last[16];
int64_t fake_runs = 0, fake_searches = 0;
// What the next searches give; an algorithm whose runs fail, all but the first.
int64_t fake_search_status = 0, fake_found = 3, fake_failing = -1;
// Of the last search: bytes on which its operands lie, A, B, C and D.
int64_t fake_alignments[4];

int cublasLtCreate(void** handle) {
  static Descriptor one;  // lives as long as the process, as the handles of the library do
  *handle = &one;
  return 0;
}
int cublasLtMatmulDescCreate(void** out, int compute, int scale) {
  auto* d = new Descriptor{};
  d->value[30] = compute;
  d->value[31] = scale;
  *out = d;
  return 0;
}
int cublasLtMatmulDescSetAttribute(void* d, int attribute, const void* value, size_t bytes) {
  std::memcpy(&static_cast<Descriptor*>(d)->value[attribute], value, bytes);
  return 0;
}
int cublasLtMatrixLayoutCreate(void** out, int type, uint64_t rows, uint64_t columns, int64_t ld) {
  *out = new Descriptor{{type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), ld}};
  return 0;
}
int cublasLtMatmulPreferenceCreate(void** out) {
  *out = new Descriptor{};
  return 0;
}
int cublasLtMatmulPreferenceSetAttribute(void* d, int attribute, const void* value, size_t bytes) {
  return cublasLtMatmulDescSetAttribute(d, attribute, value, bytes);
}
int cublasLtMatmulDescDestroy(void* d) {
  delete static_cast<Descriptor*>(d);
  return 0;
}
int cublasLtMatrixLayoutDestroy(void* d) { return cublasLtMatmulDescDestroy(d); }
int cublasLtMatmulPreferenceDestroy(void* d) { return cublasLtMatmulDescDestroy(d); }
int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void* preference, int, void* out,
                                   int* count) {
  std::memcpy(fake_alignments, &static_cast<Descriptor*>(preference)->value[5], sizeof(fake_alignments));
  ++fake_searches;
  if (fake_search_status != 0) return static_cast<int>(fake_search_status);
  auto* all = static_cast<Heuristic*>(out);
  for (int i = 0; i < 3; ++i) {
    all[i] = Heuristic{};
    all[i].algorithm[0] = static_cast<uint64_t>(i);
    all[i].state = i == 0 ? 7 : 0;  // the first is refused
  }
  *count = static_cast<int>(fake_found);
  return 0;
}
int cublasLtMatmul(void*, void* matmul, const void*, const void*, void* a, const void*, void* b, const void* beta,
                   const void*, void* c, void*, void*, const void* algorithm, void*, size_t, void*) {
  const auto* m = static_cast<Descriptor*>(matmul);
  const Descriptor* all[] = {static_cast<Descriptor*>(a), static_cast<Descriptor*>(b), static_cast<Descriptor*>(c)};
  for (int i = 0; i < 3; ++i) std::memcpy(&fake_last[4 * i], all[i]->value, 32);
  fake_last[12] = m->value[3] * 2 + m->value[4];
  fake_last[13] = m->value[30];
  uint64_t word = 0;
  std::memcpy(&word, algorithm, 8);
  fake_last[14] = static_cast<int64_t>(word);
  int32_t bits = 0;
  std::memcpy(&bits, beta, 4);
  fake_last[15] = bits != 0;
  ++fake_runs;
  static int64_t failing_runs = 0;
  return fake_last[14] == fake_failing && ++failing_runs > 1 ? 14 : 0;
}
}
