// An in-order queue of commands with a thread of its own.
//
// Commands carry sequence numbers 1, 2, … in the order in which they were pushed, and complete in
// that order. An event is a queue and a number: it has happened once that queue has completed so
// many commands. A command may wait for an event of another queue; since an event names a command
// that was pushed before, no cycle of waits can arise. One thread pushes; any thread may wait.
//
// Ownership: a queue owns its ring, its thread and the buffers of `copyOwned` commands. All other
// memory that commands point to is the pusher's, and lives until the command has completed or the
// queue was stopped.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "kernel.h"

namespace spillway {

class CommandQueue;

// How `upload` reads its source. Numbers shared with tiers/device/native/command-queues.ts.
enum class SourceType : uint32_t { bytes = 0, bfloat16 = 1, float16 = 2 };

struct Command {
  enum class Kind : uint8_t { kernel, wait, copy, copyOwned, widen, discard };
  Kind kind = Kind::copy;
  SourceType sourceType = SourceType::bytes;
  // kernel
  KernelFn fn = nullptr;
  const double* args = nullptr;
  size_t argCount = 0;
  // wait
  CommandQueue* other = nullptr;
  uint64_t sequence = 0;
  // copy, copyOwned (frees its source), discard: `count` bytes; widen: `count` elements
  char* target = nullptr;
  char* source = nullptr;
  size_t count = 0;
};

class CommandQueue {
 public:
  // Commands that may be outstanding, and the numbers of their arguments; a push beyond waits.
  static constexpr size_t kCapacity = 8192;
  static constexpr size_t kArgCapacity = size_t{1} << 17;
  static constexpr size_t kMostArgs = 4096;

  // `threads` for kernels, this queue's own included. `onWatched` is called on the queue's thread
  // when a watched command completes.
  CommandQueue(int threads, std::function<void()> onWatched);
  // Stops, see `stop`.
  ~CommandQueue();
  CommandQueue(const CommandQueue&) = delete;
  CommandQueue& operator=(const CommandQueue&) = delete;

  // Appends a command and copies its arguments; returns its number. Waits while the ring is full;
  // 0 when the queue was stopped.
  uint64_t push(const Command& command);

  uint64_t completed() const { return completed_.load(std::memory_order_seq_cst); }

  // Blocks until `sequence` commands have completed; false when the queue was stopped before.
  bool waitFor(uint64_t sequence);

  // Asks for one `onWatched` once `sequence` commands have completed, in place of what was asked
  // before. Returns the number completed: when it is not below `sequence`, the call may not come.
  uint64_t watch(uint64_t sequence);

  // Lets go of everything that waits here, and of commands not begun. Does not block.
  void requestStop();
  // requestStop, then joins the thread: the command at work runs to its end.
  void stop();

 private:
  bool isStopping() const { return stopping_.load(std::memory_order_seq_cst); }
  void run();
  bool execute(Command& command);
  void complete();
  bool awaitWork(uint64_t next);
  // Where `count` arguments go, or kArgCapacity when there is no room yet.
  size_t findArgs(size_t count) const;

  struct Slot {
    Command command;
    // Position in the argument ring behind this command's arguments.
    uint64_t argsEnd = 0;
  };

  std::vector<Slot> slots_;
  std::vector<double> args_;
  uint64_t argsHead_ = 0;  // of the pushing thread
  std::atomic<uint64_t> argsTail_{0};
  std::atomic<uint64_t> pushed_{0};
  std::atomic<uint64_t> completed_{0};
  std::atomic<uint64_t> watched_{UINT64_MAX};
  std::atomic<bool> stopping_{false};

  std::mutex mutex_;
  std::condition_variable work_;       // the queue's thread sleeps here
  std::condition_variable completion_;  // who waits for commands sleeps here
  std::atomic<bool> sleeping_{false};
  std::atomic<int> waiters_{0};

  std::function<void()> onWatched_;
  ThreadPool pool_;
  Scratch scratch_;
  std::thread thread_;
};

}  // namespace spillway
