// Entry of the addon: one register function per subject, each declared in that subject's header.
//
// Context-aware (NAPI_MODULE_INIT): it is loaded once per thread that wants it, keeps no state per
// environment, and may be used from worker threads.
#include <node_api.h>

#include "accumulate.h"
#include "adamw.h"
#include "casts.h"
#include "crc32c.h"
#include "device-runtime.h"
#include "file-lock.h"
#include "grad-norm.h"
#include "isa.h"
#include "kernel-registry.h"
#include "probes.h"
#include "ring-async.h"
#include "ring-sync.h"
#include "ring.h"
#include "slab.h"
#include "split-master.h"

namespace {

// Raised with every change of an exported name, argument or layout; tiers/native/binding.ts holds
// the same number and refuses an addon with another.
constexpr uint32_t kAbiVersion = 2;

}  // namespace

NAPI_MODULE_INIT() {
  napi_value version;
  if (napi_create_uint32(env, kAbiVersion, &version) != napi_ok ||
      napi_set_named_property(env, exports, "abiVersion", version) != napi_ok) {
    return nullptr;
  }
  spillway::registerIsa(env, exports);
  spillway::registerAdamw(env, exports);
  spillway::registerSplitMaster(env, exports);
  spillway::registerCasts(env, exports);
  spillway::registerAccumulate(env, exports);
  spillway::registerGradNorm(env, exports);
  spillway::registerCrc32c(env, exports);
  spillway::registerProbes(env, exports);
  spillway::registerFileLock(env, exports);
  spillway::registerRing(env, exports);
  spillway::registerAsyncRing(env, exports);
  spillway::registerSyncRing(env, exports);
  spillway::registerSlab(env, exports);
  spillway::registerKernelExports(env, exports);
  spillway::registerDeviceRuntime(env, exports);
  return exports;
}
