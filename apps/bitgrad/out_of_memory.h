// Termination of a process whose exception no handler could catch.
#pragma once

namespace bitgrad::cli {

// The action of std::terminate, installed before the first static object is constructed. A failed allocation (in a
// destructor, a library's thread, an initializer) ends the process with exit code 4 and a message, anything else with
// 70. Files of a run are replaced atomically (base/file.h), so they stay intact.
[[noreturn]] void end_without_handler() noexcept;

}  // namespace bitgrad::cli
