// Rules that need the whole gradient: Muon, NorMuon, Adafactor; the orthogonalization; which parameters they update.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "bitgrad/base/step_scalars.h"
#include "bitgrad/io/safetensors.h"
#include "nn/nn_support.h"
#include "optim/matrix_parts.h"
#include "optim/optim_support.h"
#include "optim/orthogonalize.h"
#include "support/catch.h"
#include "support/everywhere.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "support/strict_bits.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

using Doubles = std::vector<double>;

Doubles product(const Doubles& a, const Doubles& b, int64_t m, int64_t k, int64_t n) {
  Doubles c(static_cast<size_t>(m * n), 0.0);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < k; ++j)
      for (int64_t l = 0; l < n; ++l)
        c[static_cast<size_t>(i * n + l)] += a[static_cast<size_t>(i * k + j)] * b[static_cast<size_t>(j * n + l)];
  return c;
}
Doubles transposed(const Doubles& a, int64_t rows, int64_t cols) {
  Doubles t(a.size());
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j) t[static_cast<size_t>(j * rows + i)] = a[static_cast<size_t>(i * cols + j)];
  return t;
}
double norm_of(const Doubles& x) { return std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0)); }
double distance(const Doubles& x, const Doubles& y) {
  Doubles d(x.size());
  std::transform(x.begin(), x.end(), y.begin(), d.begin(), std::minus<>());
  return norm_of(d) / std::max(norm_of(y), 1e-30);
}

// The iterations as they are written, on the left of a wide matrix.
Doubles reference(const detail::NewtonSchulz& how, Doubles x, int64_t rows, int64_t cols) {
  const bool tall = rows > cols;
  if (tall) x = transposed(x, rows, cols);
  const int64_t k = std::min(rows, cols), n = std::max(rows, cols);
  const double by = norm_of(x) * static_cast<double>(how.norm_factor) + 1e-7;
  for (double& v : x) v /= by;
  for (const auto& [a, b, c] : how.iterations) {
    const Doubles s = product(x, transposed(x, k, n), k, n, k), ss = product(s, s, k, k, k);
    Doubles p(s.size());
    for (size_t i = 0; i < p.size(); ++i)
      p[i] = static_cast<double>(b) * s[i] + static_cast<double>(c) * ss[i] +
             (i % static_cast<size_t>(k + 1) == 0 ? static_cast<double>(a) : 0.0);
    x = product(p, x, k, k, n);
  }
  return tall ? transposed(x, k, n) : x;
}

OptimizerSpec rule(NsDType dtype, NsCoefficients coefficients = NsCoefficients::kJordan) {
  OptimizerSpec spec;
  spec.ns = dtype;
  spec.ns_coefficients = coefficients;
  return spec;
}

// A hidden weight. Codes of int4 with one scale a row unless `spec` says otherwise.
std::unique_ptr<Parameter> hidden(const Shape& shape, const std::string& path = "w", ParameterSpec spec = {}) {
  spec.init = {"uniform", -1, 1};
  auto p = std::make_unique<Parameter>(shape, spec);
  p->initialize(path, 1);
  p->set_hidden(true);
  return p;
}
ParameterSpec codes(MasterKind master, DType grad = dtypes::fp32) {
  ParameterSpec spec = weight_spec(quant_spec(dtypes::int8, "absmax"), grad);
  spec.quant->granularity = Granularity::channel(0);
  spec.quant->ste = SteRule::kIdentity;
  spec.master = master;
  return spec;
}
Doubles values_of(const Parameter& p) {
  const Tensor t = dequantized(p);
  return t.values();
}

OptimizerSpec muon(const std::string& name = "muon") {
  OptimizerSpec spec = named(name);
  spec.base_lr = 0.01;
  spec.weight_decay = 0.1f;
  return spec;
}

}  // namespace

TEST_CASE("an orthogonalized matrix is that of the iterations in double") {
  const std::pair<int64_t, int64_t> shapes[] = {{1, 1},   {1, 9},   {9, 1},     {2, 3},     {24, 40},  {40, 24},
                                                {32, 32}, {20, 40}, {127, 129}, {129, 128}, {70, 257}, {300, 131}};
  for (const auto& [rows, cols] : shapes)
    for (const NsCoefficients coefficients : {NsCoefficients::kJordan, NsCoefficients::kPolarExpress})
      for (const NsDType dtype : {NsDType::kFp32, NsDType::kBf16}) {
        INFO(rows << " x " << cols << ' ' << enum_name(coefficients) << ' ' << enum_name(dtype));
        const detail::NewtonSchulz how = detail::newton_schulz(rule(dtype, coefficients));
        const Tensor x = random_tensor({2 * rows, cols}, dtypes::fp32, 3, -1, 1);
        const Doubles before = x.values();
        const int64_t n = rows * cols;
        detail::orthogonalize(how, 2, rows, cols, x.as<float>());
        poll_errors();
        const Doubles after = x.values();
        for (const int64_t at : {int64_t{0}, n}) {
          const Doubles expected = reference(how, {before.begin() + at, before.begin() + at + n}, rows, cols);
          const Doubles got{after.begin() + at, after.begin() + at + n};
          CHECK(distance(got, expected) < (dtype == NsDType::kBf16 ? 0.1 : 2e-4));
        }
      }
}

TEST_CASE("zeros stay zeros, and tiny and large matrices have the same direction") {
  const detail::NewtonSchulz how = detail::newton_schulz({});
  const Tensor zeros = Tensor::zeros({6, 4}, dtypes::fp32);
  detail::orthogonalize(how, 1, 6, 4, zeros.as<float>());
  CHECK(zeros.values() == Doubles(24, 0.0));
  detail::orthogonalize(how, 0, 6, 4, nullptr);
  detail::orthogonalize(how, 1, 0, 4, nullptr);
  Doubles first;
  for (const float size : {1.0f, 0x1p-10f, 0x1p60f}) {
    const Tensor x = random_tensor({6, 4}, dtypes::fp32, 3, -1, 1);
    for (int64_t i = 0; i < 24; ++i) x.as<float>()[i] *= size;
    detail::orthogonalize(how, 1, 6, 4, x.as<float>());
    if (first.empty()) first = x.values();
    CHECK(distance(x.values(), first) < 1e-3);
  }
}

TEST_CASE("steps of muon, normuon and lion equal golden values in double") {
  const auto golden = load_tensors(source_path("tests/golden/update_rules.safetensors"));
  for (const char* shape : {"wide", "tall", "square"}) {
    for (const char* name : {"muon", "normuon"}) {
      const std::string head = concat(name, '.', shape, '.');
      INFO(head);
      auto w = hidden(golden.at(head + "w0").shape());
      w->assign(golden.at(head + "w0"), 0);
      const auto optimizer = make_optimizer(muon(name));
      optimizer->attach({w.get()});
      for (int step = 0; step < 4; ++step) {
        accumulate(*w, golden.at(concat(head, 'g', step)));
        optimizer->step(0.01f, 1);
      }
      const Doubles before = golden.at(head + "w0").values(), expected = golden.at(head + "w4").values();
      Doubles moved = w->value().values(), right = expected;
      for (size_t i = 0; i < moved.size(); ++i) moved[i] -= before[i], right[i] -= before[i];
      CHECK(distance(w->value().values(), expected) < 2e-6);
      CHECK(distance(moved, right) < 1e-4);
      CHECK(optimizer->state()[0].name == concat("w.", name, ".momentum"));
      CHECK(distance(optimizer->state()[0].tensor.values(), golden.at(head + "m4").values()) < 2e-6);
      if (std::string(name) == "normuon") {
        CHECK(optimizer->state()[1].name == "w.normuon.v");
        CHECK(distance(optimizer->state()[1].tensor.values(), golden.at(head + "v4").values()) < 1e-4);
      }
    }
    const detail::NewtonSchulz how = detail::newton_schulz({});
    const Tensor& g = golden.at(concat("ns.", shape, ".g"));
    const Tensor x = Tensor::from_elements(g.shape(), dtypes::fp32, g.elements());
    detail::orthogonalize(how, 1, x.rows(), x.cols(), x.as<float>());
    CHECK(distance(x.values(), golden.at(concat("ns.", shape, ".o")).values()) < 2e-5);
  }
  auto w = float_parameter("w", {64});
  w->assign(golden.at("lion.w0"), 0);
  OptimizerSpec spec = muon("lion");
  const auto optimizer = make_optimizer(spec);
  optimizer->attach({w.get()});
  for (int step = 0; step < 6; ++step) {
    accumulate(*w, golden.at(concat("lion.g", step)));
    optimizer->step(1e-3f, 1);
  }
  CHECK(distance(w->value().values(), golden.at("lion.w6").values()) < 2e-7);
  CHECK(distance(optimizer->state()[0].tensor.values(), golden.at("lion.m6").values()) < 1e-6);
}

TEST_CASE("steps of adafactor equal those of torch.optim") {
  const auto golden = load_tensors(source_path("tests/golden/adafactor.safetensors"));
  auto w = float_parameter("w", {24, 40}), v = float_parameter("v", {16});
  w->assign(golden.at("w0"), 0);
  v->assign(golden.at("v0"), 0);
  const auto optimizer = make_optimizer(muon("adafactor"));
  optimizer->attach({w.get(), v.get()});
  for (int step = 1; step <= 5; ++step) {
    accumulate(*w, golden.at(concat('g', step)));
    accumulate(*v, golden.at(concat("gv", step)));
    optimizer->step(0.01f, 1);
  }
  CHECK(distance(w->value().values(), golden.at("w5").values()) < 1e-6);
  CHECK(distance(v->value().values(), golden.at("v5").values()) < 1e-6);
  std::vector<std::string> names;
  for (const auto& s : optimizer->state()) names.push_back(concat(s.name, ' ', s.tensor.shape()));
  CHECK(names == std::vector<std::string>{"w.adafactor.r [24]", "w.adafactor.c [40]", "v.adafactor.v [16]"});
}

TEST_CASE("matrices stacked in a weight move as if each were a weight of its own") {
  for (const auto& rows : {std::vector<int64_t>{16, 16, 16}, {32, 8, 8}, {5, 5, 30, 7, 7}})
    for (const char* name : {"muon", "normuon"}) {
      INFO(name << ' ' << rows.size());
      const int64_t all = std::accumulate(rows.begin(), rows.end(), int64_t{0}), cols = 20;
      const Tensor start = random_tensor({all, cols}, dtypes::fp32, 1, -1, 1);
      const auto whole = hidden({all, cols});
      whole->assign(start, 0);
      whole->set_stacked(rows);
      const auto together = make_optimizer(muon(name));
      together->attach({whole.get()});
      std::vector<std::unique_ptr<Parameter>> parts;
      std::vector<Parameter*> pointers;
      int64_t at = 0;
      for (const int64_t n : rows) {
        parts.push_back(hidden({n, cols}, concat("p", at)));
        parts.back()->assign(start.row_slice(at, at + n), 0);
        pointers.push_back(parts.back().get());
        at += n;
      }
      const auto apart = make_optimizer(muon(name));
      apart->attach(pointers);
      for (uint64_t step = 0; step < 3; ++step) {
        const Tensor g = random_tensor({all, cols}, dtypes::fp32, 10 + step, -1, 1);
        accumulate(*whole, g);
        at = 0;
        for (size_t i = 0; i < rows.size(); ++i) {
          accumulate(*parts[i], g.row_slice(at, at + rows[i]));
          at += rows[i];
        }
        together->step(0.01f, 1);
        apart->step(0.01f, 1);
      }
      Doubles joined;
      for (const auto& p : parts) {
        const Doubles v = p->value().values();
        joined.insert(joined.end(), v.begin(), v.end());
      }
      CHECK(whole->value().values() == joined);
    }
  ParameterSpec three;
  three.matrices = 3;
  const auto w = hidden({12, 4}, "w", three);
  w->set_stacked({6, 6});
  CHECK(detail::stacked_rows(*w) == std::vector<int64_t>{4, 4, 4});  // what the user says
  const auto odd = hidden({13, 4}, "layers.1.weight", three);
  CHECK(contains(error_of([&] { make_optimizer(muon())->attach({odd.get()}); }),
                 "parameter 'layers.1.weight' ([13,4]): got matrices 3, expected a divisor of its 13 rows"));
  const auto other = hidden({13, 4});
  other->set_stacked({6, 6});  // of another reader
  CHECK(detail::stacked_rows(*other) == std::vector<int64_t>{13});
}

TEST_CASE("rules of whole matrices give the same bits on every instruction set and with any number of threads") {
  const StrictBits strict;
  for (const char* name : {"muon", "normuon", "adafactor", "lion"})
    for (const MasterKind master : {MasterKind::kFp32, MasterKind::kBf16, MasterKind::kNone}) {
      INFO(name << " master " << enum_name(master));
      Doubles first;
      everywhere([&] {
        const auto w = hidden({150, 70}, "w", codes(master));
        const auto optimizer = make_optimizer(muon(name));
        optimizer->attach({w.get()});
        for (uint64_t step = 0; step < 2; ++step) {
          accumulate(*w, random_tensor({150, 70}, dtypes::fp32, 10 + step, -1, 1));
          const RequantKey due{1, static_cast<int64_t>(step) + 1};
          optimizer->step(0.01f, 1, &due);
        }
        if (first.empty()) first = values_of(*w);
        CHECK(values_of(*w) == first);
      });
    }
}

TEST_CASE("a run of a rule of whole matrices goes on from its state with the same bits") {
  for (const char* name : {"muon", "normuon", "adafactor", "lion"})
    for (const MomentKind moments : {MomentKind::kFp32, MomentKind::kBf16, MomentKind::kInt8})
      for (const MasterKind master : {MasterKind::kFp32, MasterKind::kBf16, MasterKind::kNone})
        for (const DType grad : {dtypes::fp32, dtypes::bf16}) {
          INFO(name << ' ' << enum_name(moments) << " master " << enum_name(master) << ' ' << grad);
          const Shape shape{37, 21};
          OptimizerSpec spec = muon(name);
          spec.moments = moments;
          spec.clip_norm = 3;
          const auto step = [&](Parameter& p, Optimizer& o, uint64_t i) {
            accumulate(p, random_tensor(shape, grad, 50 + i, -1, 1));
            const RequantKey due{1, static_cast<int64_t>(i) + 1};
            o.step(0.02f, 2, &due);
          };
          const auto w = hidden(shape, "w", codes(master, grad)), again = hidden(shape, "w", codes(master, grad));
          const auto whole = make_optimizer(spec), resumed = make_optimizer(spec);
          whole->attach({w.get()});
          for (uint64_t i = 0; i < 3; ++i) step(*w, *whole, i);
          again->restore({master == MasterKind::kNone ? Tensor() : w->master(), w->value()});
          resumed->attach({again.get()});
          const auto from = whole->state(), to = resumed->state();
          REQUIRE(from.size() == to.size());
          for (size_t i = 0; i < from.size(); ++i) {
            CHECK(from[i].name == to[i].name);
            std::memcpy(to[i].tensor.data(), from[i].tensor.data(),
                        static_cast<size_t>(from[i].tensor.numel() * from[i].tensor.dtype().bits() / 8));
          }
          resumed->set_steps(3);
          for (uint64_t i = 3; i < 5; ++i) {
            step(*w, *whole, i);
            step(*again, *resumed, i);
          }
          CHECK(values_of(*w) == values_of(*again));
          for (size_t i = 0; i < from.size(); ++i)
            CHECK(whole->state()[i].tensor.elements() == resumed->state()[i].tensor.elements());
        }
}

TEST_CASE("hidden weights get the rule, everything else aux with a learning rate of its own") {
  const auto w = hidden({8, 6}, "w"), chosen = hidden({8, 6}, "chosen", ParameterSpec{.optimizer = "aux"});
  auto bias = float_parameter("bias", {8}), twin = float_parameter("bias", {8});
  OptimizerSpec spec = muon();
  spec.aux = {{.name = "adamw", .weight_decay = 0.3f, .base_lr = 0.005}};
  const auto optimizer = make_optimizer(spec);
  optimizer->attach({w.get(), chosen.get(), bias.get()});
  std::vector<std::string> names;
  for (const auto& s : optimizer->state()) names.push_back(s.name);
  CHECK(names ==
        std::vector<std::string>{"w.muon.momentum", "chosen.adam.m", "chosen.adam.v", "bias.adam.m", "bias.adam.v"});
  OptimizerSpec alone = named("adamw");
  alone.weight_decay = 0.3f;
  const auto adamw = make_optimizer(alone);
  adamw->attach({twin.get()});
  for (uint64_t step = 0; step < 3; ++step) {
    for (Parameter* p : {w.get(), chosen.get()}) accumulate(*p, random_tensor({8, 6}, dtypes::fp32, step, -1, 1));
    for (Parameter* p : {bias.get(), twin.get()}) accumulate(*p, random_tensor({8}, dtypes::fp32, step, -1, 1));
    optimizer->step(0.01f, 1);
    adamw->step(0.005f, 1);
  }
  CHECK(bias->value().values() == twin->value().values());

  const auto refused = [](OptimizerSpec s, Parameter* p) { return error_of([&] { make_optimizer(s)->attach({p}); }); };
  CHECK(
      contains(refused(muon(), bias.get()),
               "muon updates hidden weights: those of linear and convolutional layers except the last one that train. "
               "None of this model's is left to it, and aux would update everything. Set the optimizer to adamw"));
  const auto all = make_optimizer(named("sgd"));  // updates every parameter
  all->attach({chosen.get()});
  OptimizerSpec beside = named("adamw");
  beside.aux.resize(1);
  CHECK(contains(refused(beside, bias.get()),
                 "aux: got a rule sgd beside adamw, which updates all parameters by itself"));
  for (const char* name : {"muon", "bop"}) {
    OptimizerSpec twice = muon();
    twice.aux = {{.name = name}};
    CHECK(contains(refused(twice, w.get()), concat("aux: got ", name, ", expected a rule that updates any parameter")));
  }
  OptimizerSpec clips = muon();
  clips.aux = {{.name = "adam", .clip_norm = 1}};
  CHECK(contains(refused(clips, w.get()), "aux: clip_value, clip_norm and aux are those of muon. Leave them out"));
  clips.aux = {{}, {}};
  CHECK(contains(refused(clips, w.get()), "aux: got 2 rules, expected at most one"));
  OptimizerSpec open = muon();
  open.base_lr = 0;
  open.aux = {{.base_lr = 0.1}};
  CHECK(contains(refused(open, w.get()), "aux: a learning rate of its own, 0.1, needs that of muon (base_lr)"));
}

TEST_CASE("a rule of whole matrices is not fused, its aux is, and a sum of squares beyond fp32 changes nothing") {
  const auto w = hidden({8, 6});
  auto bias = float_parameter("bias", {8});
  const auto optimizer = make_optimizer(muon());
  optimizer->attach({w.get(), bias.get()});
  if (current_device().is_cpu()) {
    CHECK(optimizer->not_fused(*w) == "update rule muon needs the whole gradient");
    CHECK(optimizer->not_fused(*bias).empty());
  }
  accumulate(*w, Tensor::full({8, 6}, dtypes::fp32, 1e30));
  const Doubles before = w->value().values();
  CHECK(contains(error_of([&] { optimizer->step(0.01f, 1); }),
                 "the sum of squares of the gradient of 'w' ([8,6]) overflows fp32 at optimizer step 0. Nothing was "
                 "updated. A smaller learning rate may help."));
  CHECK_FALSE(optimizer->partially_updated());
  CHECK(w->value().values() == before);
}

TEST_CASE("factors of decay and momentum scale the numbers of each rule") {
  for (const char* name : {"muon", "normuon", "sgd"}) {
    INFO(name);
    OptimizerSpec whole = muon(name), half = muon(name);
    whole.momentum = 0.5f;
    half.momentum = 0.25f;
    half.weight_decay = 0.05f;
    const auto a = hidden({8, 6}), b = hidden({8, 6});
    const auto scaled = make_optimizer(whole), plain = make_optimizer(half);
    scaled->attach({a.get()});
    plain->attach({b.get()});
    scaled->set_factors({0.5f, 0.5f});
    for (uint64_t step = 0; step < 3; ++step)
      for (const auto& [p, o] : {std::pair(a.get(), scaled.get()), {b.get(), plain.get()}}) {
        accumulate(*p, random_tensor({8, 6}, dtypes::fp32, step, -1, 1));
        o->step(0.01f, 1);
      }
    CHECK(a->value().values() == b->value().values());
    CHECK(contains(error_of([&] {
                     scaled->set_factors({1, 1.5f});
                   }),
                   "the factor of momentum must be in [0, 1], got 1.5"));
  }
}

TEST_CASE("numbers of an orthogonalization out of range are refused, and bf16 in strict mode") {
  const auto refused = [](const std::function<void(OptimizerSpec&)>& change) {
    OptimizerSpec spec = muon();
    change(spec);
    return error_of([&] { make_optimizer(spec); });
  };
  CHECK(contains(refused([](OptimizerSpec& s) { s.ns_steps = 0; }), "ns_steps must be in [1, 100], got 0"));
  CHECK(contains(refused([](OptimizerSpec& s) {
                   s.ns_triples = {1, 2};
                 }),
                 "ns_triples: got 2 numbers, expected a, b and c of each iteration"));
  CHECK(contains(refused([](OptimizerSpec& s) { s.ns_triples = {1, 2, INFINITY}; }), "ns_triples: got inf"));
  OptimizerSpec given = muon();
  given.ns_triples = {2, -1.5, 0.375, 1.875, -1.25, 0.375};
  given.ns_steps = 4;
  const auto how = detail::newton_schulz(given);
  REQUIRE(how.iterations.size() == 4);
  CHECK(how.iterations[0][0] == 2.0f);
  CHECK(how.iterations[3][0] == 1.875f);
  CHECK(contains(refused([](OptimizerSpec& s) {
                   s.ns_triples = {2, -1.5, 0.375, 2, -1.5, 0.375};
                   s.ns_steps = 1;
                 }),
                 "ns_triples: got 2 triples for 1 iterations (ns_steps)"));
  CHECK(contains(refused([](OptimizerSpec& s) {
                   s.ns_triples = {2, -1.5, 0.375};
                   s.ns_coefficients = NsCoefficients::kPolarExpress;
                 }),
                 "ns_triples: got numbers beside ns_coefficients polar_express, expected one of them"));
  const StrictBits strict;
  OptimizerSpec narrow = muon();
  narrow.ns = NsDType::kBf16;
  const auto w = hidden({4, 4});
  CHECK(
      contains(error_of([&] { make_optimizer(narrow)->attach({w.get()}); }),
               "ns bf16: its products have no order that all machines share, which strict mode needs. Set ns to fp32"));
}

TEST_CASE("an attach that is refused leaves the attached parameters with their state") {
  const auto w = hidden({6, 4});
  auto bias = float_parameter("bias", {4});
  const auto optimizer = make_optimizer(muon());
  optimizer->attach({w.get(), bias.get()});
  const auto step = [&] {
    accumulate(*w, random_tensor({6, 4}, dtypes::fp32, 1, -1, 1));
    accumulate(*bias, random_tensor({4}, dtypes::fp32, 2, -1, 1));
    optimizer->step(0.01f, 1);
  };
  step();
  const Doubles before = optimizer->state()[0].tensor.values();
  CHECK(contains(error_of([&] { optimizer->check({bias.get()}); }), "aux would update everything"));
  CHECK(contains(error_of([&] { optimizer->attach({bias.get()}); }), "aux would update everything"));
  CHECK(optimizer->state()[0].tensor.values() == before);
  step();
  ParameterSpec two;
  two.matrices = 2;
  two.optimizer = "aux";
  const auto idle = hidden({6, 4}, "idle", two);
  CHECK(contains(error_of([&] {
                   optimizer->check({w.get(), idle.get()});
                 }),
                 "parameter 'idle': matrices 2 has no effect: rule adamw updates it"));
}

TEST_CASE("corrections of two rules after equally many updates have places of their own") {
  const auto w = hidden({6, 4});
  auto bias = float_parameter("bias", {4});
  OptimizerSpec spec = muon();
  spec.aux = {{.name = "adafactor"}};
  const auto optimizer = make_optimizer(spec);
  ParameterSpec adam;
  adam.optimizer = "adam";
  const auto other = hidden({6, 4}, "other", adam);
  optimizer->attach({w.get(), bias.get(), other.get()});
  const auto begin = [&](uint64_t i) {
    for (Parameter* p : {w.get(), other.get()}) accumulate(*p, random_tensor({6, 4}, dtypes::fp32, i, -1, 1));
    accumulate(*bias, random_tensor({4}, dtypes::fp32, i, -1, 1));
  };
  for (uint64_t i = 0; i < 2; ++i) {
    begin(i);
    optimizer->step(0.01f, 1);
  }
  StepScalars live;
  optimizer->write_scalars(live);
  int own = 0;
  for (const auto& age : live.age) own += age.c1 != 1 || age.c2 != 1 ? 1 : 0;
  CHECK(own == 2);
}
