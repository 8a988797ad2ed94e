// A small thread pool: all threads run the same function and wait for each other at barriers. They spin a little, then sleep: a
// core that another program needs is given away. Where another program holds one of the threads back, the others do not wait for
// it at every barrier: for a while the calling thread works alone.
//
// The function must not throw: a thread that left early would let the others wait forever. So it must not allocate either.
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace glass {

class Team {
  public:
    explicit Team(int size) : size_(size < 1 ? 1 : size), active_(size_) {
        try {
            for (int me = 1; me < size_; me++) threads_.emplace_back([this, me] { worker(me); });
        } catch (...) {  // the system has no more threads; one that is destroyed before it is joined would end the process
            stop();
            throw;
        }
    }

    ~Team() { stop(); }

    Team(const Team&) = delete;
    Team& operator=(const Team&) = delete;

    int size() const { return size_; }

    // Every thread calls work(its own index); returns when all are done.
    void run(const std::function<void(int)>& work) {
        const Time now = Clock::now();
        active_ = size_ > 1 && now >= parallel_from_ ? size_ : 1;
        if (active_ == 1) return work(0);
        if (now - parallel_from_ > MOST) backoff_ = LEAST;  // no thread was late for long enough to forget it
        started_.store(now, std::memory_order_relaxed);
        {
            std::lock_guard<std::mutex> lock(mutex_);
            work_ = &work;
            epoch_++;
        }
        wake_.notify_all();
        work(0);
        barrier();
        if (late_.exchange(false)) {
            parallel_from_ = Clock::now() + backoff_;
            backoff_ = std::min(2 * backoff_, MOST);
        }
    }

    // work(begin, end) for pieces of 0..total, each taken by the first free thread; all are done at the next barrier.
    template <typename Work>
    void parallel_for(int total, int unit, const Work& work) {
        if (active_ == 1) return work(0, total);
        const int units = (total + unit - 1) / unit, piece = unit * std::max(1, units / (PIECES * active_));
        for (int begin; (begin = next_.fetch_add(piece, std::memory_order_relaxed)) < total;) work(begin, std::min(total, begin + piece));
    }

    // No thread passes before all have arrived.
    void barrier() {
        if (active_ == 1) return;
        const unsigned now = generation_.load(std::memory_order_acquire);
        if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
            arrived_.store(0, std::memory_order_relaxed);
            next_.store(0, std::memory_order_relaxed);
            started_.store(Clock::now(), std::memory_order_relaxed);
            generation_.store(now + 1, std::memory_order_release);
            return;
        }
        for (int tries = 0; tries < SPINS; tries++) {
            if (generation_.load(std::memory_order_acquire) != now) return;
            pause();
        }
        const Time waiting = Clock::now();
        const Span worked = waiting - started_.load(std::memory_order_relaxed);
        while (generation_.load(std::memory_order_acquire) == now) std::this_thread::yield();
        if (Clock::now() - waiting > std::max(LATE, 4 * worked)) late_.store(true);
    }

  private:
    using Clock = std::chrono::steady_clock;
    using Time = Clock::time_point;
    using Span = Clock::duration;
    static constexpr int PIECES = 4;    // for each thread
    static constexpr int SPINS = 4000;  // some tens of microseconds
    static constexpr Span AWAKE = std::chrono::milliseconds(2);  // after its work: the next token's comes soon
    static constexpr Span LATE = std::chrono::milliseconds(1), LEAST = std::chrono::milliseconds(8), MOST = std::chrono::milliseconds(256);

    void stop() {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            stopping_ = true;
            epoch_++;
        }
        wake_.notify_all();
        for (auto& thread : threads_) thread.join();
    }

    static void pause() {
#if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
#endif
    }

    void worker(int me) {
        unsigned seen = 0;
        for (;;) {
            for (int tries = 0; tries < SPINS && epoch_.load(std::memory_order_acquire) == seen; tries++) pause();
            const Time idle = Clock::now();
            while (epoch_.load(std::memory_order_acquire) == seen && Clock::now() - idle < AWAKE) std::this_thread::yield();
            if (epoch_.load(std::memory_order_acquire) == seen) {
                std::unique_lock<std::mutex> lock(mutex_);
                wake_.wait(lock, [&] { return epoch_.load(std::memory_order_relaxed) != seen; });
            }
            seen = epoch_.load(std::memory_order_acquire);
            if (stopping_) return;
            (*work_)(me);
            barrier();
        }
    }

    int size_, active_;
    std::vector<std::thread> threads_;
    std::mutex mutex_;
    std::condition_variable wake_;
    std::atomic<unsigned> epoch_{0}, generation_{0};
    std::atomic<int> arrived_{0}, next_{0};
    std::atomic<bool> stopping_{false}, late_{false};
    std::atomic<Time> started_{Time{}};  // when the last barrier was passed
    Time parallel_from_{};               // before this time, the calling thread works alone
    Span backoff_ = LEAST;               // for how long, the next time a thread is late
    const std::function<void(int)>* work_ = nullptr;
};

}  // namespace glass
