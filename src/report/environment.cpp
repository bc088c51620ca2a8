#include "bitgrad/base/error.h"
#include "report/run_data.h"
#include "report/text.h"

namespace bitgrad::html {
namespace {

std::string git_text(const Json& session) {
  if (!session.contains("git") || !session["git"].is_object()) return "the current folder was in no git repository";
  const Json& git = session["git"];
  const int64_t changed = git.value("changed", int64_t{0});
  const std::string state =
      changed == 0 ? "nothing changed" : concat(changed, changed == 1 ? " file changed" : " files changed");
  return concat("<code>", escaped(git.value("commit", "").substr(0, 12)), "</code> on ",
                escaped(git.value("branch", "")), ", ", state);
}

std::string session_table(const Json& s) {
  Table table{{"", ""}, {}, {}, false, 2};
  const auto add = [&](const char* name, const std::string& html) { table.rows.push_back({name, html}); };
  add("started", escaped(s.value("time", "")) + " at step " + count_text(s.value("step", int64_t{0})));
  add("command", "<code>" + escaped(s.value("command", "")) + "</code>");
  add("program", escaped(concat("bitgrad ", s.value("version", ""), " (", s.value("commit", ""), ", ",
                                s.value("build", ""), ", ", s.value("compiler", ""), ')')));
  add("device", escaped(s.value("device", "")));
  add("processor", escaped(concat(s.value("cpu", ""), ", ", s.value("threads", int64_t{0}), " threads")));
  add("instructions", escaped(s.value("isa", "")));
  add("bits", escaped(s.value("bits", "")));
  add("your git", git_text(s));
  return table_html(table);
}

}  // namespace

std::string configuration(const RunData& run) {
  if (run.config_text.empty()) return section("Configuration", note("No config.yaml in the run folder."));
  return section("Configuration", note("Resolved: every key that applies, with defaults.") + "<pre>" +
                                      escaped(run.config_text) + "</pre>\n");
}

std::string environment(const RunData& run) {
  if (!run.record.is_object() || !run.record.contains("sessions"))
    return section("Environment", note("No run.json: a run writes it with log.report: true."));
  std::string out;
  const Json::Array& sessions = run.record["sessions"].items();
  constexpr size_t kMost = 20;
  for (size_t i = sessions.size() > kMost ? sessions.size() - kMost : 0; i < sessions.size(); ++i) {
    if (sessions.size() > 1) out += concat("<h3>", i == 0 ? "Start" : concat("Resume ", i), "</h3>\n");
    out += session_table(sessions[i]);
  }
  if (run.summary.is_object()) {
    const std::string hash = run.summary.value("state_hash", "");
    if (!hash.empty()) out += note("state hash <code>" + escaped(hash) + "</code>");
  }
  return section("Environment", out);
}

}  // namespace bitgrad::html
