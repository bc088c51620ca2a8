// The end of a process that no handler could catch.
#pragma once

namespace bitgrad::cli {

// What std::terminate does from before the first static object is made: a failed allocation (in a destructor, a thread
// of a library, an initializer) ends the process with exit code 4 and a text, anything else with 70. Files of a run are
// replaced as a whole (base/file.h), so that they stay as they were.
[[noreturn]] void end_without_handler() noexcept;

}  // namespace bitgrad::cli
