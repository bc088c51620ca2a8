// Files of integers in which two layers run in turns, row by row: of the value between them only the rows that the
// later one reads are kept, in a ring. Nothing is computed twice.
#include <algorithm>

#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"
#include "export/c_integer.h"

namespace bitgrad::c_integer {
namespace {

using inference::Product;

const Shape& image(const Graph& graph, Value v) { return graph[v].form.sample; }
int64_t row_bytes(const Shape& image) { return image[1] * image[2]; }

// Largest first.
std::vector<int64_t> descending(std::vector<int64_t> x) {
  std::sort(x.rbegin(), x.rend());
  return x;
}

bool needs_less(const Plan& a, const Plan& b) { return descending(a.live) < descending(b.live); }

// Values that can be kept in rings, in the order of the steps that read them, and those steps' own values.
struct Candidate {
  Value ring = -1, result = -1;
};
std::vector<Candidate> candidates(const Graph& graph, const Plan& plan) {
  std::vector<Candidate> out;
  for (const Step& reads : plan.steps)
    for (const Step& makes : plan.steps)
      if (can_stream(graph, makes, reads)) out.push_back({makes.result, reads.result});
  return out;
}

// A step runs in turns with one other.
bool fits(const Candidate& x, const std::vector<Candidate>& chosen) {
  return std::none_of(chosen.begin(), chosen.end(), [&](const Candidate& c) {
    return c.ring == x.ring || c.result == x.ring || c.ring == x.result || c.result == x.result;
  });
}

std::vector<Value> rings_of(const std::vector<Candidate>& chosen) {
  std::vector<Value> out;
  out.reserve(chosen.size());
  for (const Candidate& c : chosen) out.push_back(c.ring);
  return out;
}

size_t index_of(const Plan& plan, const Step& step) { return static_cast<size_t>(&step - plan.steps.data()); }

// "y" for 1, "y * 3".
std::string times(const char* variable, int64_t factor) {
  return factor == 1 ? std::string(variable) : concat(variable, " * ", factor);
}

std::string plus(const std::string& a, int64_t b) { return b == 0 ? a : concat(a, b < 0 ? " - " : " + ", std::abs(b)); }

}  // namespace

std::optional<RowWindow> row_window(const Graph& graph, const Step& step) {
  const auto& op = graph[step.node].operation;
  if (const auto* const product = std::get_if<Product>(&op)) {
    if (!product->conv) return std::nullopt;
    const Conv2dOptions& c = *product->conv;
    return RowWindow{(c.kernel[0] - 1) * c.dilation[0] + 1, c.stride[0], c.padding[0]};
  }
  const auto* const most = std::get_if<inference::MaxPool>(&op);
  const auto* const mean = std::get_if<inference::IntegerAvgPool>(&op);
  if (most == nullptr && (mean == nullptr || mean->whole_image)) return std::nullopt;
  const PoolOptions& o = most != nullptr ? most->options : mean->options;
  return RowWindow{o.size[0], o.stride[0], o.padding[0]};
}

bool can_stream(const Graph& graph, const Step& makes, const Step& reads) {
  const auto* const product = std::get_if<Product>(&graph[makes.node].operation);
  if (product == nullptr || !product->conv || makes.sum >= 0 || reads.inputs[0] != makes.result) return false;
  if (graph.readers(makes.result) != 1 || image(graph, makes.result).rank() != 3) return false;
  const std::optional<RowWindow> window = row_window(graph, reads);
  return window && window->extent < image(graph, makes.result)[0];
}

std::optional<int64_t> kept_in_place(const Graph& graph, const Step& makes, const Step& reads) {
  const RowWindow first = *row_window(graph, makes), second = *row_window(graph, reads);
  const Shape &in = image(graph, makes.inputs[0]), &between = image(graph, makes.result),
              &out = image(graph, reads.result);
  for (int64_t kept = second.extent; kept < between[0]; ++kept) {
    bool whole = true;
    for (int64_t y = 0; y < out[0] && whole; ++y) {
      const int64_t made = y * second.stride - second.top + kept;  // rows between, when row y is written
      if (made >= between[0]) break;
      const int64_t needed = std::max<int64_t>(std::max<int64_t>(made, 0) * first.stride - first.top, 0);
      whole = (y + 1) * row_bytes(out) <= needed * row_bytes(in);
    }
    if (whole) return kept;
  }
  return std::nullopt;
}

Plan make_stream_plan(const Graph& graph, bool own_input, bool own_output) {
  const Plan plain = make_plan(graph, own_input, own_output);
  const std::vector<Candidate> all = candidates(graph, plain);
  const auto plan_of = [&](const std::vector<Candidate>& chosen) {
    return make_plan(graph, own_input, own_output, rings_of(chosen));
  };
  // One ring more as long as the steps that need most need less, or fewer of them need it.
  std::vector<Candidate> chosen;
  Plan best = plain;
  for (bool better = true; better;) {
    better = false;
    const std::vector<Candidate> before = chosen;
    for (const Candidate& c : all) {
      if (!fits(c, before)) continue;
      std::vector<Candidate> more = before;
      more.push_back(c);
      Plan plan = plan_of(more);
      if (!needs_less(plan, best)) continue;
      best = std::move(plan);
      chosen = std::move(more);
      better = true;
    }
  }
  // None without which the arena is as small.
  for (size_t i = chosen.size(); i-- > 0;) {
    std::vector<Candidate> fewer = chosen;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    Plan plan = plan_of(fewer);
    if (plan.arena > best.arena) continue;
    best = std::move(plan);
    chosen = std::move(fewer);
  }
  return best.arena < plain.arena ? best : plain;
}

bool has_rings(const Plan& plan) {
  return std::any_of(plan.steps.begin(), plan.steps.end(), [](const Step& step) { return step.kept > 0; });
}

std::string described_rings(const Graph& graph, const Plan& plan, int64_t arena_without) {
  std::string out;
  for (const Step& step : plan.steps) {
    if (step.kept == 0) continue;
    const Shape& whole = image(graph, step.result);
    out += concat(out.empty() ? "" : "; ", graph[step.node].layer, ": ", step.kept, " of ", whole[0], " rows (",
                  step.kept * row_bytes(whole), " bytes of ", whole.numel(), ") are kept for ",
                  graph[plan.steps[index_of(plan, step) + 1].node].layer);
  }
  if (out.empty())
    return concat("nothing: no value between a convolution and its only reader, a convolution or a pool, makes the ",
                  arena_without, " bytes of values fewer when rows of it are kept. The file is that without --stream");
  return concat(out, "; values: ", plan.arena, " bytes, without --stream ", arena_without);
}

std::string statement(const Graph& graph, const Plan& plan, const Step& step, const Call& call) {
  const Form& form = graph[step.result].form;
  const bool sum = !call.other.empty();
  if (step.kept == 0 && step.reads == 0) {
    const std::string range = has_rings(plan) ? concat(", 0, ", form.sample_rows()) : "";
    return concat("  ", call.head, call.in, ", ", call.out, range, call.more, sum ? ", " : "", call.other, ");\n");
  }
  const int64_t columns = form.sample[1], bytes = row_bytes(form.sample);
  const auto range = [&](const char* row) {
    return concat(", ", times(row, columns), ", ", plus(times(row, columns), columns));
  };
  if (step.reads > 0) {
    const std::string row = " + " + times("y", bytes);
    return concat("    ", call.head, call.in, ", ", call.out, row, range("y"), call.more, sum ? ", " : "",
                  sum ? call.other + row : "", ");\n  }\n");
  }
  const Step& reads = plan.steps[index_of(plan, step) + 1];
  const RowWindow window = *row_window(graph, reads);
  return concat("  for (y = 0, r = 0; y < ", image(graph, reads.result)[0], "; ++y) {\n    for (; r < ", form.sample[0],
                " && r < ", plus(times("y", window.stride), step.kept - window.top), "; ++r)\n      ", call.head,
                call.in, ", ", call.out, " + ", times(concat("r % ", step.kept).c_str(), bytes), range("r"), call.more,
                ");\n");
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

std::string in_rows(std::string text, bool rings) {
  struct Word {
    std::string_view word, plain, with_rings;
  };
  constexpr Word kWords[] = {
      {"@KEEPS@", "", ", kept"},
      {"@KEEPING@", "",
       "\n   Of the image `kept` rows are in memory, row y at y % kept. Functions compute pixels first to end - 1 to "
       "`out`."},
      {"@KEPT@", "", " % c->kept"},
      {"@ROWS@", "", ", int32_t first, int32_t end"},
      {"@ALL@", "c->oh * c->ow", "end"},
      {"@FIRST@", "0", "first"},
      {"@P@", "p", "(p - first)"},
  };
  for (const Word& w : kWords) text = replaced(std::move(text), w.word, rings ? w.with_rings : w.plain);
  return text;
}

}  // namespace bitgrad::c_integer
