// A raw io_uring: submission and completion queues mapped from the kernel, no liburing.
//
// Owns the ring's descriptor and mappings, nothing else: whoever pushes a request keeps its memory
// alive until the request was reaped. One thread issues and reaps. At most `depth` requests are
// pushed and not yet reaped, so the completion queue (twice as long) cannot overflow. Where
// <linux/io_uring.h> is absent, open() returns -ENOSYS and nothing else may be called.
#pragma once

#include <node_api.h>

#include <cstddef>
#include <cstdint>

namespace spillway {

// Numbers shared with tiers/nvme/ring-op.ts.
enum class RingOp : uint32_t { kRead = 0, kWrite = 1, kDataSync = 2 };

// Who waits for completions: an event loop that polls the descriptor, or this thread itself.
enum class RingUse { kPolled, kBlocking };

struct Completion {
  uint32_t id;
  int32_t result;  // bytes, or a negative errno
};

class Ring {
 public:
  Ring() = default;
  ~Ring();
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  // 0 or a negative errno. Flags that the kernel does not know are left out (EINVAL, then again).
  int open(unsigned depth, RingUse use);
  void close();

  int fd() const { return fd_; }
  unsigned depth() const { return depth_; }
  // Requests pushed and not yet reaped.
  unsigned inFlight() const { return inFlight_; }

  // Queues a request; false when `depth` are in flight. No system call.
  bool push(uint32_t id, RingOp op, int fd, uint64_t offset, void* data, uint32_t length);
  // Hands queued requests to the kernel and waits until `minComplete` completions can be reaped.
  // 0, or a negative errno; then the requests that the kernel has not taken are dropped and
  // `*dropped` (may be null) is their number: the newest ones pushed.
  int submit(unsigned minComplete, unsigned* dropped);
  // Takes at most `max` completions that are there.
  unsigned reap(Completion* out, unsigned max);
  // Drops what is queued, waits for what the kernel has, forgets the results.
  void drain();

 private:
  int setup(unsigned depth, unsigned flags);
  unsigned ready() const;
  unsigned dropUnsubmitted();

  int fd_ = -1;
  unsigned depth_ = 0;
  unsigned inFlight_ = 0;
  bool deferTaskrun_ = false;

  void* sqMemory_ = nullptr;
  void* cqMemory_ = nullptr;
  void* sqes_ = nullptr;
  size_t sqBytes_ = 0, cqBytes_ = 0, sqesBytes_ = 0;
  unsigned *sqHead_ = nullptr, *sqTail_ = nullptr, *sqArray_ = nullptr;
  unsigned *cqHead_ = nullptr, *cqTail_ = nullptr;
  void* cqes_ = nullptr;
  unsigned sqMask_ = 0, cqMask_ = 0;
};

// Exports ringProbe.
void registerRing(napi_env env, napi_value exports);

}  // namespace spillway
