// The threads on which kernels run, and the one way to use them: parallelFor.
//
// A pool of size n has n - 1 threads of its own; the calling thread is the n-th. One call at a time
// (the queue's thread, or the caller of runKernelNow); a call from within one of several pieces runs
// in place, as its worker. Where a range is cut depends on the number of threads, so no result may
// depend on the cut.
//
// Ownership: the pool owns its threads and joins them when it is destroyed.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace spillway {

class ThreadPool {
 public:
  // `size` >= 1, the calling thread included.
  explicit ThreadPool(int size);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return size_; }

  // Runs body(begin, end) or body(begin, end, worker) over [0, count) in pieces of at least `grain`
  // elements (the only piece may be shorter), and returns when all are done. `worker` is in
  // [0, size()): no two pieces that run at one time have the same.
  template <class F>
  void parallelFor(size_t count, size_t grain, F&& body) {
    if (count == 0) return;
    const size_t most = count / (grain == 0 ? 1 : grain);
    const size_t wanted = static_cast<size_t>(size_) * kPiecesPerThread;
    const size_t pieces = most < wanted ? most : wanted;
    if (pieces <= 1 || size_ == 1 || inside_) {
      invoke(body, size_t{0}, count, inside_ ? currentWorker_ : 0);
      return;
    }
    using Body = std::remove_reference_t<F>;
    Job job;
    job.context = const_cast<void*>(static_cast<const void*>(&body));
    job.run = [](void* context, size_t begin, size_t end, int worker) {
      invoke(*static_cast<Body*>(context), begin, end, worker);
    };
    job.count = count;
    job.pieces = pieces;
    runJob(job);
  }

 private:
  // More pieces than threads, so that a thread that loses its core holds up little work.
  static constexpr size_t kPiecesPerThread = 4;

  struct Job {
    void (*run)(void* context, size_t begin, size_t end, int worker) = nullptr;
    void* context = nullptr;
    size_t count = 0;
    size_t pieces = 0;
    std::atomic<size_t> next{0};
  };

  template <class F>
  static void invoke(F& body, size_t begin, size_t end, int worker) {
    if constexpr (std::is_invocable_v<F&, size_t, size_t, int>) {
      body(begin, end, worker);
    } else {
      (void)worker;
      body(begin, end);
    }
  }

  void runJob(Job& job);
  void takePieces(Job& job, int worker);
  void workerLoop(int worker);

  static thread_local bool inside_;
  static thread_local int currentWorker_;

  const int size_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable idle_;
  // Under mutex_: the job that workers may still join.
  Job* open_ = nullptr;
  bool stopping_ = false;
  // Written under mutex_, also read by spinning threads.
  std::atomic<uint64_t> generation_{0};
  std::atomic<int> active_{0};
  std::vector<std::thread> threads_;
};

}  // namespace spillway
