#include "bitgrad/optim/requant.h"

namespace bitgrad {

void check_requant(const RequantPolicy& p) {
  require(p.accumulate >= 1, "requantize_every", "microbatches per optimizer step must be at least 1, got ",
          p.accumulate);
  require(p.every >= 1, "requantize_every", "must be at least 1 microbatch, got ", p.every);
  if (p.every % p.accumulate == 0) return;
  const int64_t below = p.every / p.accumulate * p.accumulate;
  fail("requantize_every", p.every, " microbatches is not a multiple of the ", p.accumulate,
       " microbatches of an optimizer step. Nearest: ", below > 0 ? concat(below, " or ") : "", below + p.accumulate);
}

}  // namespace bitgrad
