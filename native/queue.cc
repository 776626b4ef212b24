#include "queue.h"

#include <cstdlib>
#include <cstring>

#include "casts.h"

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace spillway {
namespace {

// About 10 microseconds: launches of one block come faster than that, and waking a thread costs
// the pusher a system call.
constexpr int kSpins = 300;

inline void pauseThread() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void widen(const Command& command) {
  const auto* source = reinterpret_cast<const uint16_t*>(command.source);
  auto* target = reinterpret_cast<uint32_t*>(command.target);
  if (command.sourceType == SourceType::bfloat16) {
    bf16ToF32(source, target, command.count);
  } else {
    f16ToF32(source, target, command.count);
  }
}

// Gives pages back; whoever reads them next finds zeros or what was there.
void discard(const Command& command) {
#ifdef __linux__
  madvise(command.target, command.count, MADV_DONTNEED);
#else
  (void)command;
#endif
}

}  // namespace

CommandQueue::CommandQueue(int threads, std::function<void()> onWatched)
    : slots_(kCapacity),
      args_(kArgCapacity),
      onWatched_(std::move(onWatched)),
      pool_(threads),
      thread_([this] { run(); }) {}

CommandQueue::~CommandQueue() {
  stop();
  const uint64_t pushed = pushed_.load();
  for (uint64_t index = completed_.load(); index < pushed; ++index) {
    const Command& command = slots_[index % kCapacity].command;
    if (command.kind == Command::Kind::copyOwned) std::free(command.source);
  }
}

size_t CommandQueue::findArgs(size_t count) const {
  const uint64_t tail = argsTail_.load(std::memory_order_acquire);
  const size_t at = argsHead_ % kArgCapacity;
  // Arguments lie in one piece: what does not fit before the end starts at the beginning.
  const size_t skip = at + count > kArgCapacity ? kArgCapacity - at : 0;
  return argsHead_ + skip + count - tail <= kArgCapacity ? (at + skip) % kArgCapacity
                                                        : kArgCapacity;
}

uint64_t CommandQueue::push(const Command& command) {
  const uint64_t index = pushed_.load(std::memory_order_relaxed);
  if (index >= kCapacity && !waitFor(index + 1 - kCapacity)) return 0;
  size_t at;
  while ((at = findArgs(command.argCount)) == kArgCapacity) {
    if (!waitFor(completed() + 1)) return 0;
  }
  if (isStopping()) return 0;
  Slot& slot = slots_[index % kCapacity];
  slot.command = command;
  if (command.argCount > 0) {
    std::memcpy(args_.data() + at, command.args, command.argCount * sizeof(double));
    argsHead_ += (at + kArgCapacity - argsHead_ % kArgCapacity) % kArgCapacity;
    argsHead_ += command.argCount;
    slot.command.args = args_.data() + at;
  }
  slot.argsEnd = argsHead_;
  pushed_.store(index + 1, std::memory_order_seq_cst);
  if (sleeping_.load(std::memory_order_seq_cst)) {
    std::lock_guard<std::mutex> lock(mutex_);
    work_.notify_one();
  }
  return index + 1;
}

bool CommandQueue::waitFor(uint64_t sequence) {
  if (completed() >= sequence) return true;
  for (int spin = 0; spin < kSpins; ++spin) {
    pauseThread();
    if (completed() >= sequence) return true;
  }
  waiters_.fetch_add(1, std::memory_order_seq_cst);
  {
    std::unique_lock<std::mutex> lock(mutex_);
    completion_.wait(lock, [&] { return completed() >= sequence || isStopping(); });
  }
  waiters_.fetch_sub(1, std::memory_order_seq_cst);
  return completed() >= sequence;
}

uint64_t CommandQueue::watch(uint64_t sequence) {
  watched_.store(sequence, std::memory_order_seq_cst);
  return completed();
}

void CommandQueue::requestStop() {
  std::lock_guard<std::mutex> lock(mutex_);
  stopping_.store(true, std::memory_order_seq_cst);
  work_.notify_all();
  completion_.notify_all();
}

void CommandQueue::stop() {
  requestStop();
  if (thread_.joinable()) thread_.join();
}

bool CommandQueue::awaitWork(uint64_t next) {
  const auto hasWork = [&] { return pushed_.load(std::memory_order_seq_cst) > next; };
  for (int spin = 0; spin < kSpins && !isStopping(); ++spin) {
    if (hasWork()) return true;
    pauseThread();
  }
  std::unique_lock<std::mutex> lock(mutex_);
  sleeping_.store(true, std::memory_order_seq_cst);
  work_.wait(lock, [&] { return hasWork() || isStopping(); });
  sleeping_.store(false, std::memory_order_seq_cst);
  return !isStopping();
}

void CommandQueue::run() {
  for (uint64_t next = 0; awaitWork(next); ++next) {
    if (isStopping()) return;
    Slot& slot = slots_[next % kCapacity];
    if (!execute(slot.command)) return;
    argsTail_.store(slot.argsEnd, std::memory_order_release);
    complete();
  }
}

// False when the command waited for an event that will not happen.
bool CommandQueue::execute(Command& command) {
  switch (command.kind) {
    case Command::Kind::kernel: {
      KernelCall call{command.args, command.argCount, nullptr, pool_, scratch_};
      command.fn(call);
      scratch_.reset();
      return true;
    }
    case Command::Kind::wait:
      return command.other->waitFor(command.sequence);
    case Command::Kind::copy:
    case Command::Kind::copyOwned:
      if (command.count > 0) std::memcpy(command.target, command.source, command.count);
      if (command.kind == Command::Kind::copyOwned) {
        std::free(command.source);
        command.source = nullptr;
      }
      return true;
    case Command::Kind::widen:
      widen(command);
      return true;
    case Command::Kind::discard:
      discard(command);
      return true;
  }
  return true;
}

void CommandQueue::complete() {
  const uint64_t done = completed_.load(std::memory_order_relaxed) + 1;
  completed_.store(done, std::memory_order_seq_cst);
  if (waiters_.load(std::memory_order_seq_cst) > 0) {
    std::lock_guard<std::mutex> lock(mutex_);
    completion_.notify_all();
  }
  uint64_t watched = watched_.load(std::memory_order_seq_cst);
  if (done >= watched &&
      watched_.compare_exchange_strong(watched, UINT64_MAX, std::memory_order_seq_cst)) {
    onWatched_();
  }
}

}  // namespace spillway
