// Standard streams of a process.
#pragma once

namespace bitgrad {

// Opens /dev/null as each of the descriptors 0 to 2 that the process was started without (a daemon, cron). Otherwise
// the next files that it opens get these numbers, and what the program prints is written into them. For the first line
// of main; the library itself never calls it. Throws Error(kMemory) when /dev/null cannot be opened.
void open_missing_streams();

}  // namespace bitgrad
