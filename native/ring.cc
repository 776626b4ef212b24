#include "ring.h"

#include <cerrno>

#include "napi-helpers.h"

#if defined(__linux__) && defined(__has_include)
#if __has_include(<linux/io_uring.h>)
#define SPILLWAY_IO_URING 1
#endif
#endif

#ifdef SPILLWAY_IO_URING

#include <linux/io_uring.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

// Headers of older kernels lack the names; a kernel that lacks the flags answers EINVAL.
#ifndef IORING_SETUP_COOP_TASKRUN
#define IORING_SETUP_COOP_TASKRUN (1U << 8)
#endif
#ifndef IORING_SETUP_SINGLE_ISSUER
#define IORING_SETUP_SINGLE_ISSUER (1U << 12)
#endif
#ifndef IORING_SETUP_DEFER_TASKRUN
#define IORING_SETUP_DEFER_TASKRUN (1U << 13)
#endif

namespace spillway {

namespace {

// EAGAIN and EBUSY mean that the kernel is short of memory for a moment.
constexpr int kMaxBusyRetries = 1000;

unsigned loadAcquire(const unsigned* value) { return __atomic_load_n(value, __ATOMIC_ACQUIRE); }
void storeRelease(unsigned* target, unsigned value) {
  __atomic_store_n(target, value, __ATOMIC_RELEASE);
}

unsigned* at(void* base, unsigned offset) {
  return reinterpret_cast<unsigned*>(static_cast<char*>(base) + offset);
}

int enter(int fd, unsigned toSubmit, unsigned minComplete, unsigned flags) {
  const long result =
      syscall(__NR_io_uring_enter, fd, toSubmit, minComplete, flags, nullptr, size_t{0});
  return result < 0 ? -errno : static_cast<int>(result);
}

void* map(int fd, size_t bytes, uint64_t offset) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd,
                      static_cast<off_t>(offset));
  return memory == MAP_FAILED ? nullptr : memory;
}

}  // namespace

Ring::~Ring() { close(); }

int Ring::open(unsigned depth, RingUse use) {
  const unsigned wanted = use == RingUse::kBlocking
                              ? IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN
                              : IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN;
  int status = setup(depth, wanted);
  if (status == -EINVAL) status = setup(depth, 0);
  return status;
}

int Ring::setup(unsigned depth, unsigned flags) {
  io_uring_params params;
  std::memset(&params, 0, sizeof params);
  params.flags = flags;
  const long fd = syscall(__NR_io_uring_setup, depth, &params);
  if (fd < 0) return -errno;
  fd_ = static_cast<int>(fd);
  depth_ = depth;
  deferTaskrun_ = (flags & IORING_SETUP_DEFER_TASKRUN) != 0;

  sqBytes_ = params.sq_off.array + params.sq_entries * sizeof(unsigned);
  cqBytes_ = params.cq_off.cqes + params.cq_entries * sizeof(io_uring_cqe);
  sqesBytes_ = params.sq_entries * sizeof(io_uring_sqe);
  const bool single = (params.features & IORING_FEAT_SINGLE_MMAP) != 0;
  if (single) sqBytes_ = cqBytes_ = std::max(sqBytes_, cqBytes_);
  sqMemory_ = map(fd_, sqBytes_, IORING_OFF_SQ_RING);
  cqMemory_ = single ? sqMemory_ : map(fd_, cqBytes_, IORING_OFF_CQ_RING);
  sqes_ = map(fd_, sqesBytes_, IORING_OFF_SQES);
  if (sqMemory_ == nullptr || cqMemory_ == nullptr || sqes_ == nullptr) {
    const int error = errno;
    close();
    return -error;
  }
  sqHead_ = at(sqMemory_, params.sq_off.head);
  sqTail_ = at(sqMemory_, params.sq_off.tail);
  sqArray_ = at(sqMemory_, params.sq_off.array);
  sqMask_ = *at(sqMemory_, params.sq_off.ring_mask);
  cqHead_ = at(cqMemory_, params.cq_off.head);
  cqTail_ = at(cqMemory_, params.cq_off.tail);
  cqMask_ = *at(cqMemory_, params.cq_off.ring_mask);
  cqes_ = at(cqMemory_, params.cq_off.cqes);
  return 0;
}

void Ring::close() {
  if (cqMemory_ != nullptr && cqMemory_ != sqMemory_) munmap(cqMemory_, cqBytes_);
  if (sqMemory_ != nullptr) munmap(sqMemory_, sqBytes_);
  if (sqes_ != nullptr) munmap(sqes_, sqesBytes_);
  sqMemory_ = cqMemory_ = sqes_ = nullptr;
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

bool Ring::push(uint32_t id, RingOp op, int fd, uint64_t offset, void* data, uint32_t length) {
  if (inFlight_ >= depth_) return false;
  const unsigned tail = *sqTail_;
  const unsigned index = tail & sqMask_;
  auto* sqe = static_cast<io_uring_sqe*>(sqes_) + index;
  std::memset(sqe, 0, sizeof *sqe);
  sqe->fd = fd;
  sqe->user_data = id;
  switch (op) {
    case RingOp::kRead:
    case RingOp::kWrite:
      sqe->opcode = op == RingOp::kRead ? IORING_OP_READ : IORING_OP_WRITE;
      sqe->off = offset;
      sqe->addr = reinterpret_cast<uint64_t>(data);
      sqe->len = length;
      break;
    case RingOp::kDataSync:
      sqe->opcode = IORING_OP_FSYNC;
      sqe->fsync_flags = IORING_FSYNC_DATASYNC;
      break;
  }
  sqArray_[index] = index;
  storeRelease(sqTail_, tail + 1);
  inFlight_ += 1;
  return true;
}

unsigned Ring::ready() const { return loadAcquire(cqTail_) - *cqHead_; }

unsigned Ring::dropUnsubmitted() {
  const unsigned head = loadAcquire(sqHead_);
  const unsigned dropped = *sqTail_ - head;
  storeRelease(sqTail_, head);
  inFlight_ -= dropped;
  return dropped;
}

int Ring::submit(unsigned minComplete, unsigned* dropped) {
  if (dropped != nullptr) *dropped = 0;
  for (int busyRetries = 0;;) {
    const unsigned toSubmit = *sqTail_ - loadAcquire(sqHead_);
    // Every request in flight completes, so a wait for at most that many ends.
    const unsigned wait = std::min(minComplete, inFlight_);
    const bool enough = ready() >= wait;
    if (toSubmit == 0 && enough) return 0;
    // With DEFER_TASKRUN completions appear only when this thread asks for them.
    const bool getEvents = !enough || deferTaskrun_;
    const int status =
        enter(fd_, toSubmit, enough ? 0 : wait, getEvents ? IORING_ENTER_GETEVENTS : 0);
    if (status >= 0 || status == -EINTR) continue;
    if ((status == -EAGAIN || status == -EBUSY) && busyRetries++ < kMaxBusyRetries) {
      sched_yield();
      continue;
    }
    const unsigned count = dropUnsubmitted();
    if (dropped != nullptr) *dropped = count;
    return status;
  }
}

unsigned Ring::reap(Completion* out, unsigned max) {
  unsigned head = *cqHead_;
  const unsigned tail = loadAcquire(cqTail_);
  unsigned count = 0;
  for (; count < max && head != tail; ++count, ++head) {
    const auto& cqe = static_cast<const io_uring_cqe*>(cqes_)[head & cqMask_];
    out[count] = {static_cast<uint32_t>(cqe.user_data), cqe.res};
  }
  storeRelease(cqHead_, head);
  inFlight_ -= count;
  return count;
}

void Ring::drain() {
  if (fd_ < 0) return;
  dropUnsubmitted();
  Completion ignored[16];
  while (inFlight_ > 0) {
    if (submit(1, nullptr) != 0) return;
    reap(ignored, 16);
  }
}

}  // namespace spillway

#else

namespace spillway {

Ring::~Ring() = default;
int Ring::open(unsigned, RingUse) { return -ENOSYS; }
void Ring::close() {}
bool Ring::push(uint32_t, RingOp, int, uint64_t, void*, uint32_t) { return false; }
int Ring::submit(unsigned, unsigned*) { return -ENOSYS; }
unsigned Ring::reap(Completion*, unsigned) { return 0; }
void Ring::drain() {}

}  // namespace spillway

#endif

namespace spillway {

namespace {

// ringProbe(): 0, or the errno with which the kernel refuses a ring.
napi_value ringProbe(napi_env env, napi_callback_info) {
  Ring ring;
  napi_value result;
  if (napi_create_int32(env, -ring.open(1, RingUse::kPolled), &result) != napi_ok) return nullptr;
  return result;
}

}  // namespace

void registerRing(napi_env env, napi_value exports) {
  exportFunction(env, exports, "ringProbe", ringProbe);
}

}  // namespace spillway
