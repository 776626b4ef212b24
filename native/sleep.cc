// Kernels that take a stated time: what tests of ordering and overlap need, and a paced device.
#include <chrono>
#include <thread>

#include "kernel.h"

namespace spillway {

// sleepFor(milliseconds)
SPILLWAY_KERNEL(sleepFor) {
  std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(call.d(0)));
}

}  // namespace spillway
