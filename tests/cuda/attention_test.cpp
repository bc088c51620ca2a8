// Attention and rotary positions on the (emulated) device: the bits of the CPU.
#include "bitgrad/ops/attention.h"
#include "cuda/counted.h"

using namespace bitgrad;
using namespace bitgrad::test;

TEST_CASE("attention of every shape is that of the CPU, on the device, with its gradients") {
  struct Problem {
    int64_t samples, rows, heads, kv_heads, dim, first;
  };
  for (const Problem& p : {Problem{2, 65, 4, 2, 8, 0}, Problem{1, 3, 2, 1, 17, 62}, Problem{1, 130, 1, 1, 5, 0},
                           Problem{0, 3, 1, 1, 4, 0}}) {
    INFO(p.rows << " rows, " << p.heads << " heads over " << p.kv_heads);
    AttentionOptions options{.heads = p.heads, .kv_heads = p.kv_heads, .first = p.first};
    for (const DType dtype : {dtypes::fp32, dtypes::bf16}) {
      options.scale = dtype == dtypes::bf16 ? 0.3f : 0.0f;
      const Tensor q = host_numbers({p.samples, p.rows, p.heads * p.dim}, 1, 1, dtype),
                   k = host_numbers({p.samples, p.first + p.rows, p.kv_heads * p.dim}, 2, 1, dtype),
                   v = host_numbers({p.samples, p.first + p.rows, p.kv_heads * p.dim}, 3, 1, dtype);
      CHECK(device_difference([&] {
              AccumulateSink sinks[3];
              Tape tape;
              const Var y =
                  attention(tape.leaf(here(q), &sinks[0], dtypes::fp32), tape.leaf(here(k), &sinks[1], dtypes::fp32),
                            tape.leaf(here(v), &sinks[2], dtypes::fp32), options);
              tape.backward({y}, {here(host_numbers(y.shape(), 5))});
              return Results{y.value(), sinks[0].grad(), sinks[1].grad(), sinks[2].grad()};
            }) == "");
    }
  }
}

TEST_CASE("attention and rope of q, k and v side by side are those of the CPU, on the device") {
  const AttentionOptions options{.heads = 4, .kv_heads = 2};
  for (const bool interleaved : {false, true}) {
    const RopeOptions turns{.dim = 6, .interleaved = interleaved};
    const Tensor x = host_numbers({2, 70, 48}, 1);
    CHECK(device_difference([&] {
            AccumulateSink sink;
            Tape tape;
            const Var leaf = tape.leaf(here(x), &sink, dtypes::fp32);
            const Var y = attention(rope(leaf, rope_table(70, turns), turns, 0, 6), options);
            tape.backward({y}, {here(host_numbers(y.shape(), 5))});
            return Results{y.value(), sink.grad()};
          }) == "");
  }
}
