// Standard streams of the process.
#pragma once

namespace bitgrad {

// Opens /dev/null for each of the descriptors 0 to 2 that is closed at startup (a daemon, cron). Otherwise the next
// files opened would get these numbers, and program output would be written into them. Call this first in main; the
// library itself never does. Throws Error(kMemory) if /dev/null cannot be opened.
void open_missing_streams();

}  // namespace bitgrad
