#include <cmath>

#include "bitgrad/base/json.h"
#include "bitgrad/run/quant_monitor.h"

namespace bitgrad {
namespace {

constexpr size_t kMostInHistogram = 16;  // codes: dtypes of up to 4 bits

// Infinity, which JSON lacks, becomes a text. Other values are rounded to float, for brevity.
Json number(double x) {
  if (std::isinf(x)) return x > 0 ? "inf" : "-inf";
  if (std::isnan(x)) return nullptr;
  return std::stod(concat(static_cast<float>(x)));
}
Json number(const std::optional<double>& x) { return x ? number(*x) : Json(nullptr); }

Json record(const QuantStatistics& s) {
  Json j{{"elements", s.elements},
         {"codes", s.histogram.size()},
         {"dead_codes", s.dead_codes},
         {"entropy", number(s.entropy)},
         {"entropy_limit", number(s.entropy_limit)},
         {"at_ends", number(s.at_ends)},
         {"saturated", number(s.saturated)},
         {"pass", number(s.pass)},
         {"sqnr_db", number(s.sqnr_db)},
         {"scale", nullptr}};
  if (s.scale)
    j["scale"] = {
        {"least", number(s.scale->least)}, {"mean", number(s.scale->mean)}, {"largest", number(s.scale->largest)}};
  if (s.histogram.size() <= kMostInHistogram) j["histogram"] = s.histogram;
  return j;
}

}  // namespace

std::string to_json(const QuantStatistics& statistics) { return record(statistics).dump(); }

std::string to_json(const QuantEvent& e) {
  Json j{{"event", "quant"}, {"step", e.step},   {"epoch", e.epoch},   {"layer", e.layer},
         {"part", e.part},   {"dtype", e.dtype}, {"scheme", e.scheme}, {"granularity", e.granularity}};
  j.update(record(e.statistics));
  if (e.part != "weight") return j.dump();
  j["since"] = e.since ? Json(*e.since) : Json(nullptr);
  j["flip_rate"] = number(e.flip_rate);
  j["scale_drift"] = number(e.scale_drift);
  j["watched"] = e.watched;
  j["flips_per_requantization"] = number(e.flips_per_requantization);
  j["oscillating"] = number(e.oscillating);
  j["oscillation"] = number(e.oscillation);
  return j.dump();
}

}  // namespace bitgrad
