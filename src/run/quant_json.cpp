#include <cmath>

#include "bitgrad/base/json.h"
#include "bitgrad/run/quant_monitor.h"

namespace bitgrad {
namespace {

constexpr size_t kMostInHistogram = 16;  // codes: dtypes of up to 4 bits

// Infinity, which JSON lacks, becomes a text. Other values are rounded to float, for brevity.
Json rounded(double x) {
  if (std::isinf(x)) return x > 0 ? "inf" : "-inf";
  if (std::isnan(x)) return nullptr;
  return std::stod(concat(static_cast<float>(x)));
}
Json rounded(const std::optional<double>& x) { return x ? rounded(*x) : Json(nullptr); }

Json record(const QuantStatistics& s) {
  Json j{{"elements", s.elements},
         {"codes", s.histogram.size()},
         {"dead_codes", s.dead_codes},
         {"entropy", rounded(s.entropy)},
         {"entropy_limit", rounded(s.entropy_limit)},
         {"at_ends", rounded(s.at_ends)},
         {"saturated", rounded(s.saturated)},
         {"pass", rounded(s.pass)},
         {"sqnr_db", rounded(s.sqnr_db)},
         {"scale", nullptr}};
  if (s.scale)
    j["scale"] = {
        {"least", rounded(s.scale->least)}, {"mean", rounded(s.scale->mean)}, {"largest", rounded(s.scale->largest)}};
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
  j["flip_rate"] = rounded(e.flip_rate);
  j["scale_drift"] = rounded(e.scale_drift);
  j["watched"] = e.watched;
  j["flips_per_requantization"] = rounded(e.flips_per_requantization);
  j["oscillating"] = rounded(e.oscillating);
  j["oscillation"] = rounded(e.oscillation);
  return j.dump();
}

}  // namespace bitgrad
