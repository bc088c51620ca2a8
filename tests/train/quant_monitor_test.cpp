// Reports while a model trains, against codes that the test keeps itself.
#include "bitgrad/run/quant_monitor.h"
#include "bitgrad/base/json.h"

#include <cmath>

#include "bitgrad/ops/ops.h"
#include "nn/activation_quantizer.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "train/small_learner.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

// Codes and scales of one weight at a step boundary.
struct Kept {
  std::vector<double> codes, scales;
};
using All = std::map<std::string, Kept>;

All codes_now(Learner& learner) {
  All all;
  const std::map<std::string, QuantPlace> places = quant_places(learner.model());
  for (const Parameter* p : learner.model().parameters()) {
    if (!p->low_bit()) continue;
    Kept& k = all[places.at(p->path()).layer];
    k.codes = p->value().elements();
    if (p->value().quant()->scale) k.scales = p->value().quant()->scale->elements();
  }
  return all;
}

double share_that_differ(const std::vector<double>& a, const std::vector<double>& b) {
  int64_t n = 0;
  for (size_t i = 0; i < a.size(); ++i) n += a[i] != b[i];
  return static_cast<double>(n) / static_cast<double>(a.size());
}

struct Turns {
  int64_t flips = 0, reversals = 0, reversed = 0;
};
Turns turns(const std::vector<std::vector<double>>& path) {
  Turns t;
  for (size_t i = 0; i < path[0].size(); ++i) {
    int way = 0;
    bool any = false;
    for (size_t k = 1; k < path.size(); ++k) {
      const double by = path[k][i] - path[k - 1][i];
      if (by == 0) continue;
      ++t.flips;
      const int now = by > 0 ? 1 : -1;
      t.reversals += way == -now;
      any = any || way == -now;
      way = now;
    }
    t.reversed += any;
  }
  return t;
}

}  // namespace

TEST_CASE("flips, drift and oscillation of a report are those of the codes at every requantization") {
  struct Case {
    int64_t accumulate, every, reports_at, window;
  };
  // Reports in microbatches; windows longer and shorter than the time between reports.
  for (const Case& c : {Case{1, 1, 12, 5}, Case{1, 1, 4, 16}, Case{2, 4, 24, 3}, Case{1, 3, 9, 1}}) {
    INFO("A " << c.accumulate << ", N " << c.every << ", reports every " << c.reports_at << ", window " << c.window);
    const auto learner = small_learner(dtypes::bint1, "binary", 3, c.accumulate, c.every);
    QuantMonitor monitor(*learner, c.window);
    All at_report = codes_now(*learner);
    std::map<std::string, std::vector<std::vector<double>>> watched;
    const auto begin_watch = [&](int64_t left) {
      monitor.expect(left);
      if (left <= c.window * c.every && watched.empty())
        for (const auto& [layer, k] : codes_now(*learner)) watched[layer] = {k.codes};
    };
    int64_t since = 0;
    begin_watch(c.reports_at);
    for (int64_t microbatch = 1; microbatch <= 3 * c.reports_at; ++microbatch) {
      train_some(*learner, 1);
      if (learner->window_samples() > 0) continue;
      monitor.stepped();
      const All now = codes_now(*learner);
      if (learner->since_requantize() == 0)
        for (auto& [layer, path] : watched) path.push_back(now.at(layer).codes);
      if (microbatch % c.reports_at == 0) {
        const std::vector<QuantEvent> events = monitor.report(7);
        REQUIRE(events.size() == 3);
        for (const QuantEvent& e : events) {
          INFO(e.layer << " at step " << e.step);
          const auto& path = watched.at(e.layer);
          const double n = static_cast<double>(now.at(e.layer).codes.size());
          CHECK(e.step == learner->state().step);
          CHECK(e.epoch == 7);
          CHECK(e.part == "weight");
          CHECK(*e.since == since);
          CHECK(*e.flip_rate == share_that_differ(at_report.at(e.layer).codes, now.at(e.layer).codes));
          double drift = 0;
          const auto &before = at_report.at(e.layer).scales, &after = now.at(e.layer).scales;
          for (size_t i = 0; i < after.size(); ++i) drift += std::abs(after[i] - before[i]) / before[i];
          if (!after.empty()) drift /= static_cast<double>(after.size());
          CHECK(std::abs(*e.scale_drift - drift) < 1e-12);
          CHECK(e.watched == static_cast<int64_t>(path.size()) - 1);
          CHECK(e.watched <= c.window);
          const Turns t = turns(path);
          const double k = static_cast<double>(e.watched);
          CHECK(std::abs(*e.flips_per_requantization - static_cast<double>(t.flips) / n / k) < 1e-12);
          CHECK(e.oscillating.has_value() == (e.watched >= 2));
          if (e.watched < 2) continue;
          CHECK(std::abs(*e.oscillating - static_cast<double>(t.reversed) / n) < 1e-12);
          CHECK(std::abs(*e.oscillation - static_cast<double>(t.reversals) / n / k) < 1e-12);
        }
        at_report = now;
        since = learner->state().step;
        watched.clear();
      }
      const int64_t left = c.reports_at - microbatch % c.reports_at;
      begin_watch(left);
    }
  }
}

TEST_CASE("what was not watched and what was not seen is none") {
  const auto learner = small_learner();
  QuantMonitor monitor(*learner);
  for (const QuantEvent& e : monitor.report(0)) {
    CHECK(*e.since == 0);
    CHECK_FALSE(e.flip_rate.has_value());
    CHECK_FALSE(e.scale_drift.has_value());
    CHECK(e.watched == 0);
    CHECK_FALSE(e.flips_per_requantization.has_value());
    CHECK_FALSE(e.oscillation.has_value());
    CHECK(e.statistics.sqnr_db.has_value());
  }
  train_some(*learner, 2);
  monitor.stepped();
  for (const QuantEvent& e : monitor.report(0)) {
    CHECK(e.flip_rate.has_value());
    CHECK(e.watched == 0);
  }
  CHECK(contains(error_of([&] { QuantMonitor(*learner, 0); }), "[QuantMonitor] the window is at least one"));
}

TEST_CASE("a layer that is switched off has no report, and is counted anew when it is on again") {
  const auto learner = small_learner();
  QuantPhase on, off, again;
  off.from = 3;
  off.mode.quantization = QuantSwitch::kOff;
  again.from = 5;
  learner->set_phases({on, off, again});
  QuantMonitor monitor(*learner);
  const auto train = [&](int64_t steps) {
    for (int64_t i = 0; i < steps; ++i) {
      train_some(*learner, 1);
      monitor.stepped();
    }
  };
  train(2);
  CHECK(monitor.report(0).size() == 3);
  train(2);
  CHECK(learner->phase() == 1);
  CHECK(monitor.report(0).empty());
  monitor.expect(4);
  train(3);
  CHECK(learner->phase() == 2);
  const std::vector<QuantEvent> events = monitor.report(0);
  REQUIRE(events.size() == 3);
  for (const QuantEvent& e : events) {
    CHECK(*e.since == 6);  // codes at 5 belong to no boundary that was seen
    CHECK(e.watched == 1);
    CHECK(e.flip_rate.has_value());
  }
}

TEST_CASE("activations are reported from one batch in evaluation mode, and nothing of the learner moves") {
  LayerSpec quantize = plain_spec("quantize");
  quantize.activation.emplace();
  quantize.activation->spec.dtype = dtypes::int4;
  quantize.activation->spec.scheme = "symmetric";
  OptimizerSpec adam;
  adam.name = "adam";
  LayerSpec lsq = quantize;
  lsq.activation->spec.scheme = "lsq";
  Learner learner(
      make_sequential({quantize, linear_spec(4, dtypes::int4, "symmetric"), lsq, linear_spec(3, dtypes::fp32, "")},
                      kFeatures),
      find_loss("softmax_cross_entropy"), adam, RequantPolicy{1, 1}, [](int64_t) { return 0.05f; }, 3);
  train_some(learner, 3);
  const Tensor x = random_tensor({40, kFeatures}, dtypes::fp32, 5, -3, 3);
  const Tensor before = learner.predict(x);
  int64_t told = 0;
  learner.state().on_forward = [&](const std::string&, const Tensor&, const Tensor&) { ++told; };
  const std::vector<QuantEvent> events = activation_events(learner, x);
  CHECK(told == 0);
  CHECK(learner.state().training);
  CHECK(bits_of(learner.predict(x)) == bits_of(before));
  CHECK(told > 0);  // the hook is back
  REQUIRE(events.size() == 2);
  CHECK(events[0].layer == "layers.0");
  CHECK(events[0].part == "quantize");
  CHECK(events[1].layer == "layers.2");
  CHECK(events[1].scheme == "lsq");
  const QuantStatistics s =
      quant_statistics(quantize.activation->spec, quantize_dynamic(quantize.activation->spec, x), x);
  CHECK(events[0].statistics.histogram == s.histogram);
  CHECK(*events[0].statistics.saturated == *s.saturated);
  CHECK(*events[0].statistics.sqnr_db == *s.sqnr_db);
  CHECK(*events[0].statistics.pass == *s.pass);
  CHECK(events[1].statistics.elements == 40 * 4);
  CHECK_FALSE(events[0].since.has_value());

  // What the next step will refuse is no error of a report.
  Tensor broken = x.clone(MemoryKind::kActivation);
  broken.as<float>()[0] = std::nanf("");
  CHECK(activation_events(learner, broken).empty());
  CHECK(learner.usable());
  train_some(learner, 1);
}

TEST_CASE("reports change no bit of the training") {
  std::vector<std::vector<uint32_t>> masters;
  for (const bool watched : {false, true}) {
    const auto learner = small_learner(dtypes::int2, "lsq");
    std::optional<QuantMonitor> monitor;
    if (watched) monitor.emplace(*learner, 2);
    for (int64_t i = 0; i < 10; ++i) {
      train_some(*learner, 1);
      if (!monitor) continue;
      monitor->stepped();
      if (i % 3 == 2) monitor->report(0, random_tensor({4, kFeatures}, dtypes::fp32, 1));
      monitor->expect(3 - i % 3);
    }
    std::vector<uint32_t>& all = masters.emplace_back();
    for (const Parameter* p : learner->model().parameters())
      for (const uint32_t bits : bits_of(p->master())) all.push_back(bits);
  }
  CHECK(masters[0] == masters[1]);
}

TEST_CASE("places follow from the owner of a weight or quantizer, for any name") {
  class Odd final : public Module {
   public:
    Odd() : a_(add_quantizable("gate_input", {3, 5}, weight())), b_(add_quantizable("up", {3, 5}, weight())) {
      ActivationQuant own;
      own.spec.dtype = dtypes::int8;
      own.spec.scheme = "absmax";
      add_child("input", std::make_shared<ActivationQuantizer>(own));
    }
    Var forward(const Var& x) override { return add(a_.linear(x), b_.linear(x)); }
    Form plan(const Form& in, PlanRequests& requests) override {
      a_.plan_linear(in, requests);
      return b_.plan_linear(in, requests);
    }

   private:
    static ParameterSpec weight() {
      ParameterSpec spec;
      spec.init = {"glorot_uniform"};
      return spec;
    }
    Quantizable &a_, &b_;
  };
  Odd model;
  PrepareSpec spec;
  spec.all = find_recipe("w8a8");
  prepare(model, spec);
  StepState state;
  model.initialize(kModelRoot, state);
  std::map<std::string, std::string> found;
  for (const auto& [path, place] : quant_places(model)) found[path] = place.layer + ' ' + place.part;
  CHECK(found == std::map<std::string, std::string>{{"layers.gate_input", "layers.gate_input weight"},
                                                    {"layers.gate_input_input", "layers.gate_input input"},
                                                    {"layers.input", "layers.input quantize"},
                                                    {"layers.up", "layers.up weight"},
                                                    {"layers.up_input", "layers.up input"}});
}

TEST_CASE("an event is one line of JSON; infinities are texts, unknown numbers null") {
  QuantEvent e;
  e.step = 12;
  e.layer = "layers.1";
  e.part = "weight";
  e.dtype = "int2";
  e.statistics.elements = 4;
  e.statistics.histogram = {1, 0, 2, 1};
  e.statistics.dead_codes = 1;
  e.statistics.sqnr_db = INFINITY;
  e.since = 8;
  e.flip_rate = 0.25;
  const std::string text = to_json(e);
  CHECK(text.find('\n') == std::string::npos);
  const Json j = Json::parse(text);
  CHECK(j.at("event") == "quant");
  CHECK(j.at("step") == 12);
  CHECK(j.at("sqnr_db") == "inf");
  CHECK(j.at("saturated").is_null());
  CHECK(j.at("scale").is_null());
  CHECK(j.at("flip_rate") == 0.25);
  CHECK(j.at("oscillation").is_null());
  CHECK(j.at("histogram") == Json::array({1, 0, 2, 1}));
  e.statistics.histogram.assign(256, 1);
  e.statistics.sqnr_db = -INFINITY;
  e.part = "input";
  const Json input = Json::parse(to_json(e));
  CHECK_FALSE(input.contains("histogram"));
  CHECK_FALSE(input.contains("flip_rate"));
  CHECK(input.at("sqnr_db") == "-inf");
}
