#include "thread-pool.h"

namespace spillway {

thread_local bool ThreadPool::inside_ = false;
thread_local int ThreadPool::currentWorker_ = 0;

namespace {

// Kernels of one block follow each other within microseconds, and a sleeping thread takes some 10
// of them to wake (and its caller a system call). Spinning longer would take the core from
// JavaScript.
constexpr int kSpins = 400;

inline void pauseThread() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

template <class Condition>
bool spinUntil(Condition condition) {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (condition()) return true;
    pauseThread();
  }
  return condition();
}

}  // namespace

ThreadPool::ThreadPool(int size) : size_(size < 1 ? 1 : size) {
  threads_.reserve(static_cast<size_t>(size_) - 1);
  for (int worker = 1; worker < size_; ++worker) {
    threads_.emplace_back([this, worker] { workerLoop(worker); });
  }
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    generation_.fetch_add(1, std::memory_order_release);
  }
  wake_.notify_all();
  for (auto& thread : threads_) thread.join();
}

// The caller does not wait for workers that have not woken yet: it closes the job when no piece is
// left, and then only those who joined hold it up.
void ThreadPool::runJob(Job& job) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    open_ = &job;
    generation_.fetch_add(1, std::memory_order_release);
  }
  wake_.notify_all();
  takePieces(job, 0);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    open_ = nullptr;
  }
  const auto isIdle = [this] { return active_.load(std::memory_order_acquire) == 0; };
  if (spinUntil(isIdle)) return;
  std::unique_lock<std::mutex> lock(mutex_);
  idle_.wait(lock, isIdle);
}

void ThreadPool::takePieces(Job& job, int worker) {
  inside_ = true;
  currentWorker_ = worker;
  for (;;) {
    const size_t piece = job.next.fetch_add(1, std::memory_order_relaxed);
    if (piece >= job.pieces) break;
    // The quotient and remainder keep the products small for any count.
    const size_t each = job.count / job.pieces, rest = job.count % job.pieces;
    const size_t begin = piece * each + (piece < rest ? piece : rest);
    job.run(job.context, begin, begin + each + (piece < rest ? 1 : 0), worker);
  }
  inside_ = false;
  currentWorker_ = 0;
}

void ThreadPool::workerLoop(int worker) {
  uint64_t seen = 0;
  for (;;) {
    spinUntil([&] { return generation_.load(std::memory_order_acquire) != seen; });
    Job* job = nullptr;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      wake_.wait(lock, [&] { return generation_.load(std::memory_order_relaxed) != seen; });
      if (stopping_) return;
      seen = generation_.load(std::memory_order_relaxed);
      job = open_;
      if (job == nullptr) continue;
      active_.fetch_add(1, std::memory_order_relaxed);
    }
    takePieces(*job, worker);
    if (active_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      // The caller may be between its check and its sleep.
      std::lock_guard<std::mutex> lock(mutex_);
      idle_.notify_one();
    }
  }
}

}  // namespace spillway
