// One row, one result: what a causal model gives for a row is the same alone, among others, and from a cache of keys
// and values. Windows and errors.
#include "bitgrad/infer/generator.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/block_cache.h"
#include "bitgrad/base/cpu.h"
#include "bitgrad/base/memory.h"
#include "train/small_gpt.h"
#include "train/small_runs.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

using Scores = std::vector<float>;

struct Case {
  std::string name;
  Strings overrides;
};
const std::vector<Case>& cases() {
  static const std::string token = "activations: {dtype: int8, scheme: absmax, granularity: token}";
  static const std::vector<Case> all{
      {"fp32", {}},
      {"fp32, rope", {"model.layers.1={dropout: {p: 0}}", kRope}},
      {"fp32, rope and positions", {kRope}},
      {"fp32, rope, q and k by heads", {kRope, kHeadNorm}},
      {"int4 groups, q and k by rows", {"quant.recipe=int4wo", kRope, kRowNorm}},
      {"bf16 values, q and k by heads", {"model.values=bf16", kRope, kHeadNorm}},
      {"fp32, a window and a scale", {kRope, kAttentionKeys + "window=7", kAttentionKeys + "scale=0.4"}},
      {"fp32, capped scores, scaled residuals",
       {kRope, kAttentionKeys + "softcap=0.5", "model.layers.2.repeat.layers.0.residual.scale=0.5"}},
      {"int4 groups, a window, scaled rows",
       {"quant.recipe=int4wo", kRope, kAttentionKeys + "window=1", "model.layers.0.embedding.scale=3"}},
      {"int8 per token", {"quant.recipe=w8a8"}},
      {"int4 groups", {"quant.recipe=8da4w"}},
      {"int4 groups, float inputs", {"quant.recipe=int4wo", kRope}},
      {"ternary_int8", {"quant.recipe=ternary_int8", kRope}},
      {"bint1", {in_blocks("weights: {dtype: bint1, scheme: binary, alpha: channel}, " + token)}},
      {"bint1, float inputs", {in_blocks("weights: {dtype: bint1, scheme: binary}")}},
      {"ternary, float inputs", {in_blocks("weights: {dtype: ternary, scheme: ternary}")}},
      {"learned steps", {"quant.recipe=w4a4"}},
      {"observed range",
       {in_blocks("weights: {dtype: int8, scheme: absmax}, activations: {dtype: int8, scheme: absmax, "
                  "granularity: tensor, observer: {name: min_max}}")}},
      {"simulated", {in_blocks("compute: simulated, weights: {dtype: int4, scheme: symmetric}, " + token)}},
      {"bf16 values", {"model.values=bf16"}},
      {"bf16 values, int8", {"model.values=bf16", "quant.recipe=w8a8"}},
      {"adapters", {"adapters={layers: [\"layers.2.*\"], rank: 4, alpha: 8}", "quant.recipe=int4wo"}}};
  return all;
}

// Rows of scores of ids, all in one call.
std::vector<Scores> rows_of(Learner& learner, const std::vector<int32_t>& ids) {
  const std::vector<double> y = learner.predict(ids_tensor(ids)).elements();
  std::vector<Scores> rows;
  for (size_t i = 0; i < ids.size(); ++i)
    rows.emplace_back(y.begin() + static_cast<std::ptrdiff_t>(i) * kGptIds,
                      y.begin() + static_cast<std::ptrdiff_t>(i + 1) * kGptIds);
  return rows;
}
std::vector<int32_t> first_of(const std::vector<int32_t>& ids, int64_t n) { return {ids.begin(), ids.begin() + n}; }
Scores fed(Generator& generator, const std::vector<int32_t>& ids) {
  const std::span<const float> scores = generator.feed(ids);
  return {scores.begin(), scores.end()};
}

std::vector<IsaLevel> levels() { return {IsaLevel::kScalar, IsaLevel::kAvx2, IsaLevel::kAvx512, IsaLevel::kAmx}; }

// The windows of Generator, restated: window k begins at k * (context - context / 2).
std::vector<int32_t> window_ids(const std::vector<int32_t>& ids, int64_t context) {
  int64_t begin = 0;
  const auto n = static_cast<int64_t>(ids.size());
  while (n - begin > context) begin += context - context / 2;
  return {ids.begin() + begin, ids.end()};
}

}  // namespace

TEST_CASE("a row of a causal model is the same alone, among others and from a cache, for any quantization") {
  const KeepModes keep;
  const std::vector<int32_t> ids = some_ids(kGptContext);
  for (const Case& c : cases())
    for (const BitsMode mode : {BitsMode::kFast, BitsMode::kStrict}) {
      INFO(c.name << (mode == BitsMode::kFast ? ", fast" : ", strict"));
      set_bits_mode(mode);
      const auto learner = gpt_learner(c.overrides);
      const std::vector<Scores> all = rows_of(*learner, ids);
      for (const int64_t rows : {1, 2, 7, 8, 9, 16, 33}) {
        const std::vector<Scores> some = rows_of(*learner, first_of(ids, rows));
        bool same = true;
        for (size_t i = 0; i < some.size(); ++i) same = same && some[i] == all[i];
        INFO("of " << rows << " rows");
        CHECK(same);
      }
      for (const std::vector<int64_t>& pieces :
           {std::vector<int64_t>(40, 1), {40}, {1, 39}, {7, 1, 1, 8, 9, 1, 13}, {33, 1, 1, 1, 1, 1, 1, 1}}) {
        Generator generator(*learner);
        CHECK(generator.cached());
        bool same = true;
        auto at = ids.begin();
        for (const int64_t piece : pieces) {
          const Scores scores = fed(generator, {at, at + piece});
          at += piece;
          same = same && scores == all[static_cast<size_t>(at - ids.begin()) - 1];
        }
        INFO(pieces.size() << " pieces");
        CHECK(same);
        CHECK(generator.ids() == ids);
      }
      Generator plain(*learner, {.cache = false});
      CHECK_FALSE(plain.cached());
      CHECK(fed(plain, first_of(ids, 11)) == all[10]);
      CHECK(fed(plain, {ids[11]}) == all[11]);
      CHECK(plain.cache_bytes() == 0);
    }
}

TEST_CASE("batches of sequences have the rows of each, and a later token changes no earlier scores") {
  const KeepModes keep;
  for (const char* recipe : {"none", "ternary_int8", "8da4w"}) {
    INFO(recipe);
    const auto learner = gpt_learner({std::string("quant.recipe=") + recipe});
    std::vector<int32_t> both = some_ids(20), other = some_ids(20, 2);
    const std::vector<Scores> one = rows_of(*learner, both), two = rows_of(*learner, other);
    both.insert(both.end(), other.begin(), other.end());
    const std::vector<double> y = learner->predict(ids_tensor(both, 2)).elements();
    for (size_t i = 0; i < y.size(); ++i) {
      const size_t row = i / kGptIds;
      REQUIRE(static_cast<float>(y[i]) == (row < 20 ? one[row] : two[row - 20])[i % kGptIds]);
    }
    for (const size_t changed : {size_t{0}, size_t{7}, size_t{19}}) {
      std::vector<int32_t> ids = some_ids(20);
      ids[changed] = (ids[changed] + 1) % kGptIds;
      const std::vector<Scores> rows = rows_of(*learner, ids);
      for (size_t i = 0; i < rows.size(); ++i) CHECK((rows[i] == one[i]) == (i < changed));
    }
  }
}

TEST_CASE("strict: the same greedy tokens on every instruction set, from a cache or without") {
  const KeepModes keep;
  set_bits_mode(BitsMode::kStrict);
  // CRC32C of 60 ids, as int32.
  for (const auto& [recipe, golden] :
       {std::pair{"none", 0x88f0ae94u}, {"ternary_int8", 0xc36bbacdu}, {"torchao_8da4w", 0xe41516cbu}})
    for (const IsaLevel level : levels()) {
      set_isa_cap(level);
      const auto learner = gpt_learner({std::string("quant.recipe=") + recipe, kRope});
      for (const bool cache : {true, false}) {
        Generator generator(*learner, {.cache = cache});
        const Scores scores = fed(generator, {1, 2, 3});
        GenerateSpec spec;
        spec.tokens = 60;
        spec.sampling = {.repetition_penalty = 3, .temperature = 0};  // fewer repetitions
        const std::vector<int32_t> ids = generate(generator, scores, nullptr, spec).ids;
        INFO(recipe << ", level " << static_cast<int>(level) << ", cache " << cache);
        REQUIRE(ids.size() == 60);
        CHECK(crc32c(ids.data(), ids.size() * sizeof(int32_t)) == golden);
        CHECK(std::set<int32_t>(ids.begin(), ids.end()).size() > 8);
      }
    }
}

TEST_CASE("past the context the last half is read anew, fed in any pieces") {
  const KeepModes keep;
  const auto learner = gpt_learner({"quant.recipe=8da4w"});
  const std::vector<int32_t> ids = some_ids(131);
  std::vector<Scores> expected;
  for (int64_t n = 1; n <= 131; ++n)
    expected.push_back(rows_of(*learner, window_ids(first_of(ids, n), kGptContext)).back());
  for (const bool cache : {true, false})
    for (const int64_t piece : {1, 3, 50, 131}) {
      INFO("cache " << cache << ", pieces of " << piece);
      Generator generator(*learner, {.cache = cache});
      for (int64_t at = 0; at < 131; at += piece) {
        const int64_t end = std::min<int64_t>(at + piece, 131);
        REQUIRE(fed(generator, {ids.begin() + at, ids.begin() + end}) == expected[static_cast<size_t>(end - 1)]);
      }
      for (const int64_t length : {130, 90, 41, 40, 39, 5}) {
        generator.truncate(length);
        CHECK(generator.length() == length);
        REQUIRE(fed(generator, {ids[static_cast<size_t>(length)]}) == expected[static_cast<size_t>(length)]);
      }
    }
}

TEST_CASE("a model whose data were documents apart writes as of one text, from a cache or without") {
  const KeepModes keep;
  const auto learner = gpt_learner({"quant.recipe=8da4w"});
  constexpr int32_t end = kGptIds - 1;  // of documents, in the middle of each window
  std::vector<int32_t> ids = some_ids(50);
  for (int32_t& id : ids) id %= end;
  ids[20] = ids[44] = end;
  const std::vector<Scores> joined = rows_of(*learner, first_of(ids, kGptContext));
  const Scores last = rows_of(*learner, window_ids(ids, kGptContext)).back();
  learner->set_document_end(end);
  const std::vector<Scores> apart = rows_of(*learner, first_of(ids, kGptContext));
  CHECK(apart[20] == joined[20]);  // the end is its document's last id
  CHECK(apart[21] != joined[21]);
  for (const bool cache : {true, false})
    for (const int64_t piece : {1, 7, 40}) {
      INFO("cache " << cache << ", pieces of " << piece);
      Generator generator(*learner, {.cache = cache});
      for (int64_t at = 0; at < kGptContext; at += piece) {
        const int64_t until = std::min(at + piece, kGptContext);
        REQUIRE(fed(generator, {ids.begin() + at, ids.begin() + until}) == joined[static_cast<size_t>(until - 1)]);
      }
      CHECK(fed(generator, {ids.begin() + kGptContext, ids.end()}) == last);
      CHECK(learner->document_end() == end);
      CHECK_THROWS(generator.feed(std::vector<int32_t>{-1}));
      CHECK(learner->document_end() == end);
    }
  CHECK(rows_of(*learner, first_of(ids, kGptContext)) == apart);  // evaluation keeps them apart still
}

TEST_CASE("a cache of any kind gives the same scores however ids are cut, and kinds differ by little") {
  const KeepModes keep;
  const auto learner = gpt_learner({kRope});
  const std::vector<int32_t> ids = some_ids(70);
  std::vector<Scores> last;
  for (const KvKind kind : {KvKind::kFp32, KvKind::kBf16, KvKind::kInt8}) {
    std::vector<Scores> first;
    for (const int64_t piece : {1, 9, 70}) {
      Generator generator(*learner, {.kv = kind});
      Scores scores;
      for (int64_t at = 0; at < 70; at += piece)
        scores = fed(generator, {ids.begin() + at, ids.begin() + std::min<int64_t>(at + piece, 70)});
      first.push_back(scores);
      CHECK(scores == first[0]);
    }
    last.push_back(first[0]);
  }
  const auto distance = [&](size_t kind) {
    float most = 0;
    for (size_t i = 0; i < last[0].size(); ++i) most = std::max(most, std::abs(last[kind][i] - last[0][i]));
    return most;
  };
  for (const size_t kind : {size_t{1}, size_t{2}}) CHECK((distance(kind) > 0 && distance(kind) < 0.2f));
}

TEST_CASE("angles of rope grow with the text, layers share them, and scores are those of one call") {
  const KeepModes keep;
  constexpr int64_t kContext = 700;
  const auto learner = [] { return gpt_learner({kRope, "model.layers.1={dropout: {p: 0}}"}, 0, kContext); };
  const auto whole = learner(), pieces = learner();
  const std::vector<int32_t> ids = some_ids(kContext);
  const std::vector<Scores> rows = rows_of(*whole, ids);
  Generator generator(*pieces);
  std::vector<size_t> wrong;
  const int64_t before = memory_now()[MemoryKind::kBuffer], heads_row = int64_t{8} * 4;  // 8 numbers a position
  int64_t last = 0;
  for (const int64_t end : {1, 2, 255, 256, 257, 511, 512, 513, 514, 700}) {
    if (fed(generator, {ids.begin() + last, ids.begin() + end}) != rows[static_cast<size_t>(end) - 1])
      wrong.push_back(static_cast<size_t>(end));
    if (end == 1 && pieces->device().is_cpu())
      CHECK(memory_now()[MemoryKind::kBuffer] - before == 256 * heads_row);  // of both layers
    last = end;
  }
  CHECK(wrong.empty());
}

TEST_CASE("the memory of a cache is the account's, by kind") {
  const auto learner = gpt_learner({});
  const int64_t before = memory_now()[MemoryKind::kKvCache];
  const int64_t numbers = int64_t{2} * 2 * kGptContext * 16;  // layers, k and v, rows, kv_heads * d
  const int64_t blocks = learner->device().is_cpu() ? int64_t{2} * 2 * 64 * 16 : numbers;  // of 64 rows
  for (const auto& [kind, bytes] : {std::pair{KvKind::kFp32, 4 * blocks},
                                    {KvKind::kBf16, 2 * blocks},
                                    {KvKind::kInt8, numbers + numbers / 16 * 2}}) {
    Generator generator(*learner, {.kv = kind});
    CHECK(generator.cache_bytes() == 0);
    generator.feed(some_ids(5));
    CHECK(generator.cache_bytes() == bytes);
    CHECK(memory_now()[MemoryKind::kKvCache] - before == bytes);
  }
  CHECK(memory_now()[MemoryKind::kKvCache] == before);
}

TEST_CASE("a step of generation makes no request for memory to the system, from the third on") {
  if (!bitgrad::detail::BlockCache::kKeeps) return;  // sanitized builds keep no free blocks
  const KeepModes keep;
  for (const char* recipe : {"none", "8da4w", "int4wo"}) {
    INFO(recipe);
    const auto learner = gpt_learner({std::string("quant.recipe=") + recipe, kRope});
    Generator generator(*learner);
    fed(generator, some_ids(4));
    for (int i = 0; i < 2; ++i) fed(generator, {3});
    const int64_t misses = memory_misses(), bytes = memory_now().total;
    for (int i = 0; i < 30; ++i) fed(generator, {5});
    CHECK(memory_misses() == misses);
    CHECK(memory_now().total == bytes);
  }
}

TEST_CASE("a Generator reports what it needs, and an error does not change it") {
  const auto learner = gpt_learner({});
  Generator generator(*learner);
  const Scores first = fed(generator, {1, 2});
  CHECK(contains(error_of([&] { generator.feed({}); }), "[generate] got no ids to read"));
  CHECK(contains(error_of([&] {
                   generator.feed(std::vector<int32_t>{3, kGptIds});
                 }),
                 "[generate] id 33: the model has ids 0 .. 32"));
  CHECK(contains(error_of([&] { generator.feed(std::vector<int32_t>{-1}); }), "id -1: the model has ids 0 .. 32"));
  CHECK(generator.ids() == std::vector<int32_t>{1, 2});
  CHECK(contains(error_of([&] { generator.truncate(3); }), "truncate: got 3 of 2 ids"));
  const std::vector<Scores> rows = rows_of(*learner, {1, 2, 3});
  CHECK(first == rows[1]);
  CHECK(fed(generator, {3}) == rows[2]);
  // Whole sequences are evaluated between two tokens, and training goes on.
  CHECK(rows_of(*learner, {1, 2, 3}) == rows);
  CHECK(fed(generator, {4}) == rows_of(*learner, {1, 2, 3, 4})[3]);

  const RunConfig digits = small({"quant.weights={dtype: int8, scheme: absmax}"});
  Form in;
  in.sample = {64};
  const auto other = build_learner(digits, in, 10, 100);
  CHECK(contains(error_of([&] { Generator g(*other); }),
                 "[generate] not a language model: its input is fp32 [64] per sample, expected ids [context]. Needed: "
                 "a model of text"));
  const RunConfig flat =
      parse_config(kSmallGpt, "gpt.yaml", {"model.layers=[{embedding: {num: 33, dim: 4}}, {linear: {out: 33}}]"});
  Form ids;
  ids.sample = {8};
  ids.dtype = dtypes::int32;
  ids.ids = 33;
  const auto window = build_learner(flat, ids, 33, 100);
  CHECK(contains(error_of([&] { Generator g(*window); }),
                 "its output is [33] per sample, expected scores for each of 8 positions"));
}

TEST_CASE("a model of tokens without attention generates too, and keeps nothing") {
  const RunConfig config = parse_config(
      kSmallGpt, "gpt.yaml", {"model.layers=[{embedding: {num: 33, dim: 4, flat: false}}, {linear: {out: 33}}]"});
  Form ids;
  ids.sample = {8};
  ids.dtype = dtypes::int32;
  ids.ids = 33;
  const auto learner = build_learner(config, ids, 33, 100);
  Generator generator(*learner);
  CHECK_FALSE(generator.cached());
  const Scores scores = fed(generator, some_ids(21));
  CHECK(generate(generator, scores, nullptr, {.tokens = 9}).ids.size() == 9);
  CHECK(generator.cache_bytes() == 0);
}
