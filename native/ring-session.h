// A ring together with what its requests use on the JavaScript side; the common half of the
// asynchronous and the blocking binding.
//
// Owns the ring, one reference per slot to the view whose memory is in flight, and a reference to
// the completions array, to which results are written as (slot, result) pairs. A slot is free
// again once its completion was written. References die with release(), on the thread of `env`.
#pragma once

#include <node_api.h>

#include <cstdint>
#include <vector>

#include "ring.h"

namespace spillway {

// A depth beyond this helps no disk and only costs memory.
constexpr uint32_t kMaxRingDepth = 1024;

class RingSession {
 public:
  // Opens the ring and takes `completions`, an Int32Array of at least 2 * depth elements.
  // False with an exception pending.
  bool open(napi_env env, napi_value depth, napi_value completions, RingUse use);
  // Queues the request described by JavaScript arguments (slot, op, fd, offset, view).
  bool push(napi_env env, const napi_value* arguments);
  // Writes what is complete; returns the number of pairs.
  uint32_t writeCompletions(napi_env env);
  // Submits and waits as Ring::submit does; forgets the references of dropped requests.
  int submit(napi_env env, unsigned minComplete, unsigned* dropped);
  // Waits for what is in flight, closes the ring, drops all references. Idempotent.
  void release(napi_env env);

  Ring& ring() { return ring_; }
  bool closed() const { return closed_; }
  int32_t* completions() { return completions_; }

 private:
  void forget(napi_env env, uint32_t slot);

  Ring ring_;
  bool closed_ = true;
  napi_ref completionsReference_ = nullptr;
  int32_t* completions_ = nullptr;
  std::vector<napi_ref> views_;       // by slot
  std::vector<uint32_t> pushed_;      // slots queued since the last submit, oldest first
  std::vector<Completion> reaped_;
};

}  // namespace spillway
