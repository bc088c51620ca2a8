#include "memory_table.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "table.h"

namespace bitgrad::cli {

void print_memory(std::ostream& out, const MemoryAccount& peak) {
  std::vector<std::pair<int64_t, std::string>> kinds;
  for (int i = 0; i < kMemoryKinds; ++i)
    if (const int64_t bytes = peak.bytes[static_cast<size_t>(i)]; bytes > 0)
      kinds.emplace_back(bytes, memory_kind_name(static_cast<MemoryKind>(i)));
  std::stable_sort(kinds.begin(), kinds.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  out << "memory at the peak: " << size_text(peak.total) << '\n';
  for (const auto& [bytes, name] : kinds) {
    const std::string size = size_text(bytes);
    out << "  " << name << std::string(14 - std::min<size_t>(14, name.size()), ' ')
        << std::string(9 - std::min<size_t>(9, size.size()), ' ') << size << '\n';
  }
}

}  // namespace bitgrad::cli
