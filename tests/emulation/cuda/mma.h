// mma.sync, ldmatrix and cp.async for the emulation: the lanes of a warp meet, fragments are gathered by their maps,
// and products are exact (bf16: a sum and its 16 products are added in double and rounded once).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace bitgrad::cuda::emulation {

enum class MmaKind : uint8_t { kS8S8, kS8U8, kU8S8, kU8U8, kBits, kBf16 };

void multiply(MmaKind kind, int (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);
void multiply_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);
uint32_t multiply_add_bf16(uint32_t x, uint32_t y, uint32_t z);
void load_matrices(uint32_t (&out)[4], const void* row);
void store_matrices(void* row, const uint32_t (&words)[4], bool transposed);
uint32_t pack_bf16(float first, float second);

// A copy takes place at once or when its group is waited for, depending on the seed, which exposes reading too early
// and overwriting too early.
class AsyncCopies {
 public:
  template <int kBytes>
  void copy(void* to, const void* from, int valid) {
    add(kBytes, to, from, valid);
  }
  void commit();
  template <int kPending>
  void wait() {
    land(kPending);
  }

 private:
  struct Copy {
    int bytes;
    void* to;
    const void* from;
    int valid;
    void land() const;
  };
  void add(int bytes, void* to, const void* from, int valid);
  void land(size_t pending);

  std::vector<std::vector<Copy>> groups_;
  std::vector<Copy> open_;
};

}  // namespace bitgrad::cuda::emulation
