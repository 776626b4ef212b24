#include "ring-session.h"

#include <cstring>

#include "napi-helpers.h"

namespace spillway {

namespace {

// The kernel transfers at most 2 GiB - 4 KiB per request.
constexpr size_t kMaxTransferBytes = 0x7ffff000;

bool getUint32(napi_env env, napi_value value, const char* message, uint32_t* out) {
  if (napi_get_value_uint32(env, value, out) == napi_ok) return true;
  throwTypeError(env, message);
  return false;
}

}  // namespace

bool RingSession::open(napi_env env, napi_value depthValue, napi_value completions, RingUse use) {
  uint32_t depth = 0;
  Span<int32_t> pairs;
  if (!getUint32(env, depthValue, "depth must be a number", &depth) ||
      !getSpan(env, completions, "completions", &pairs)) {
    return false;
  }
  if (depth == 0 || depth > kMaxRingDepth || pairs.length < 2 * size_t{depth}) {
    throwRangeError(env, "depth must be 1 to 1024, completions hold two elements per request");
    return false;
  }
  const int status = ring_.open(depth, use);
  if (status != 0) {
    char message[128];
    std::snprintf(message, sizeof message, "io_uring_setup: %s", std::strerror(-status));
    napi_throw_error(env, nullptr, message);
    return false;
  }
  if (napi_create_reference(env, completions, 1, &completionsReference_) != napi_ok) {
    ring_.close();
    throwTypeError(env, "completions cannot be referenced");
    return false;
  }
  completions_ = pairs.data;
  views_.assign(depth, nullptr);
  pushed_.reserve(depth);
  reaped_.resize(depth);
  closed_ = false;
  return true;
}

bool RingSession::push(napi_env env, const napi_value* arguments) {
  uint32_t slot = 0, op = 0;
  int32_t fd = -1;
  int64_t offset = -1;
  Span<uint8_t> view;
  if (!getUint32(env, arguments[0], "slot must be a number", &slot) ||
      !getUint32(env, arguments[1], "op must be a number", &op) ||
      !getSpan(env, arguments[4], "view", &view)) {
    return false;
  }
  if (napi_get_value_int32(env, arguments[2], &fd) != napi_ok ||
      napi_get_value_int64(env, arguments[3], &offset) != napi_ok) {
    throwTypeError(env, "fd and offset must be numbers");
    return false;
  }
  if (closed_ || slot >= views_.size() || views_[slot] != nullptr || fd < 0 || offset < 0 ||
      op > static_cast<uint32_t>(RingOp::kDataSync) || view.length > kMaxTransferBytes) {
    throwRangeError(env, "the ring is closed, the slot is in use, or an argument is out of range");
    return false;
  }
  if (napi_create_reference(env, arguments[4], 1, &views_[slot]) != napi_ok) {
    throwTypeError(env, "view cannot be referenced");
    return false;
  }
  if (!ring_.push(slot, static_cast<RingOp>(op), fd, static_cast<uint64_t>(offset), view.data,
                  static_cast<uint32_t>(view.length))) {
    forget(env, slot);
    throwRangeError(env, "the ring is full");
    return false;
  }
  pushed_.push_back(slot);
  return true;
}

void RingSession::forget(napi_env env, uint32_t slot) {
  if (views_[slot] == nullptr) return;
  napi_delete_reference(env, views_[slot]);
  views_[slot] = nullptr;
}

uint32_t RingSession::writeCompletions(napi_env env) {
  const unsigned count = ring_.reap(reaped_.data(), static_cast<unsigned>(reaped_.size()));
  for (unsigned i = 0; i < count; ++i) {
    completions_[2 * i] = static_cast<int32_t>(reaped_[i].id);
    completions_[2 * i + 1] = reaped_[i].result;
    forget(env, reaped_[i].id);
  }
  return count;
}

int RingSession::submit(napi_env env, unsigned minComplete, unsigned* dropped) {
  const int status = ring_.submit(minComplete, dropped);
  for (unsigned i = 0; status != 0 && i < *dropped; ++i) {
    forget(env, pushed_[pushed_.size() - 1 - i]);
  }
  pushed_.clear();
  return status;
}

void RingSession::release(napi_env env) {
  if (closed_) return;
  closed_ = true;
  ring_.drain();
  ring_.close();
  for (uint32_t slot = 0; slot < views_.size(); ++slot) forget(env, slot);
  napi_delete_reference(env, completionsReference_);
  completionsReference_ = nullptr;
  completions_ = nullptr;
}

}  // namespace spillway
