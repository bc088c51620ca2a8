// Communicator: what ranks exchange. A single process has a LocalCommunicator, for which every call is a no-op.
#pragma once

#include <cstdint>

namespace bitgrad {

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // x[i] = sum over ranks of x[i], in rank order.
  virtual void all_reduce(float* x, int64_t n) = 0;
  // out holds size() * bytes: the part of rank r at r * bytes.
  virtual void all_gather(const void* part, int64_t bytes, void* out) = 0;
  // out[n / size()] = this rank's part of the sum; n must be a multiple of size().
  virtual void reduce_scatter(const float* x, int64_t n, float* out) = 0;
  virtual void broadcast(void* data, int64_t bytes, int root) = 0;
};

// One rank: sums and gathers are copies of what came in.
class LocalCommunicator final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void all_reduce(float*, int64_t) override {}
  void all_gather(const void* part, int64_t bytes, void* out) override;
  void reduce_scatter(const float* x, int64_t n, float* out) override;
  void broadcast(void*, int64_t, int) override {}
};

}  // namespace bitgrad
