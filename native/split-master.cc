#include "split-master.h"

namespace spillway {
namespace {

SPILLWAY_BODY void splitMasterBody(const uint32_t* __restrict master, uint16_t* __restrict param,
                                   uint16_t* __restrict low, size_t length) {
  for (size_t i = 0; i < length; ++i) {
    const uint32_t bits = splittableBits(master[i]);
    param[i] = splitHigh(bits);
    low[i] = static_cast<uint16_t>(bits);
  }
}

SPILLWAY_BODY void joinMasterBody(const uint16_t* __restrict param, const uint16_t* __restrict low,
                                  uint32_t* __restrict master, size_t length) {
  for (size_t i = 0; i < length; ++i) master[i] = joinBits(param[i], low[i]);
}

SPILLWAY_VERSIONS(splitMaster,
                  (const uint32_t* master, uint16_t* param, uint16_t* low, size_t length),
                  (master, param, low, length))
SPILLWAY_VERSIONS(joinMaster,
                  (const uint16_t* param, const uint16_t* low, uint32_t* master, size_t length),
                  (param, low, master, length))

// splitMaster(master: Float32Array, param: Uint16Array, masterLo: Uint16Array): void
napi_value splitMasterExport(napi_env env, napi_callback_info info) {
  Arguments<3> arguments;
  Span<float> master;
  Span<uint16_t> param, low;
  if (arguments.read(env, info) && getSpan(env, arguments[0], "master", &master) &&
      getSpan(env, arguments[1], "param", &param) && getSpan(env, arguments[2], "masterLo", &low) &&
      checkLength(env, "param", param.length, master.length) &&
      checkLength(env, "masterLo", low.length, master.length)) {
    splitMaster(bitsOf(master.data), param.data, low.data, master.length);
  }
  return nullptr;
}

// joinMaster(param: Uint16Array, masterLo: Uint16Array, master: Float32Array): void
napi_value joinMasterExport(napi_env env, napi_callback_info info) {
  Arguments<3> arguments;
  Span<float> master;
  Span<uint16_t> param, low;
  if (arguments.read(env, info) && getSpan(env, arguments[0], "param", &param) &&
      getSpan(env, arguments[1], "masterLo", &low) && getSpan(env, arguments[2], "master", &master) &&
      checkLength(env, "masterLo", low.length, param.length) &&
      checkLength(env, "master", master.length, param.length)) {
    joinMaster(param.data, low.data, bitsOf(master.data), param.length);
  }
  return nullptr;
}

}  // namespace

void registerSplitMaster(napi_env env, napi_value exports) {
  exportFunction(env, exports, "splitMaster", splitMasterExport);
  exportFunction(env, exports, "joinMaster", joinMasterExport);
}

}  // namespace spillway
