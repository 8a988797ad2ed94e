// A few threads that walk through the same work and wait for each other. They spin a little, then sleep: a core that another
// program needs is given away. And where another program holds one of the threads back, the others do not wait for it time and
// again: for a while the first one works alone.
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
    explicit Team(int size) : size_(size < 1 ? 1 : size), working_(size_) {
        for (int me = 1; me < size_; me++) threads_.emplace_back([this, me] { serve(me); });
    }

    ~Team() {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            over_ = true;
            round_++;
        }
        wake_.notify_all();
        for (auto& thread : threads_) thread.join();
    }

    Team(const Team&) = delete;
    Team& operator=(const Team&) = delete;

    // How many walk through the work that is under way.
    int size() const { return working_; }

    // Every thread does the work, each with a number of its own; returns when all are done.
    void run(const std::function<void(int)>& work) {
        const Time now = Clock::now();
        working_ = size_ > 1 && now >= together_ ? size_ : 1;
        if (working_ == 1) return work(0);
        if (now - together_ > MOST) alone_ = LEAST;  // it has gone well for long
        started_.store(now, std::memory_order_relaxed);
        {
            std::lock_guard<std::mutex> lock(mutex_);
            work_ = &work;
            round_++;
        }
        wake_.notify_all();
        work(0);
        meet();
        if (late_.exchange(false)) {
            together_ = Clock::now() + alone_;
            alone_ = std::min(2 * alone_, MOST);
        }
    }

    // Pieces of some work, from `begin` to `end`, each done by the first free thread; all are done at the barrier.
    template <typename Work>
    void share(int total, int unit, const Work& work) {
        if (working_ == 1) return work(0, total);
        const int units = (total + unit - 1) / unit, piece = unit * std::max(1, units / (PIECES * working_));
        for (int begin; (begin = taken_.fetch_add(piece, std::memory_order_relaxed)) < total;) work(begin, std::min(total, begin + piece));
    }

    // A barrier: no thread passes before all have come.
    void meet() {
        if (working_ == 1) return;
        const unsigned now = meeting_.load(std::memory_order_acquire);
        if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
            arrived_.store(0, std::memory_order_relaxed);
            taken_.store(0, std::memory_order_relaxed);
            started_.store(Clock::now(), std::memory_order_relaxed);
            meeting_.store(now + 1, std::memory_order_release);
            return;
        }
        for (int tries = 0; tries < SPINS; tries++) {
            if (meeting_.load(std::memory_order_acquire) != now) return;
            pause();
        }
        const Time waiting = Clock::now();
        const Span worked = waiting - started_.load(std::memory_order_relaxed);
        while (meeting_.load(std::memory_order_acquire) == now) std::this_thread::yield();
        if (Clock::now() - waiting > std::max(LATE, 4 * worked)) late_.store(true);
    }

  private:
    using Clock = std::chrono::steady_clock;
    using Time = Clock::time_point;
    using Span = Clock::duration;
    static constexpr int PIECES = 4;    // for each thread
    static constexpr int SPINS = 4000;  // some tens of microseconds
    static constexpr Span LATE = std::chrono::milliseconds(1), LEAST = std::chrono::milliseconds(8), MOST = std::chrono::milliseconds(256);

    static void pause() {
#if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
#endif
    }

    void serve(int me) {
        unsigned seen = 0;
        for (;;) {
            for (int tries = 0; tries < SPINS && round_.load(std::memory_order_acquire) == seen; tries++) pause();
            if (round_.load(std::memory_order_acquire) == seen) {
                std::unique_lock<std::mutex> lock(mutex_);
                wake_.wait(lock, [&] { return round_.load(std::memory_order_relaxed) != seen; });
            }
            seen = round_.load(std::memory_order_acquire);
            if (over_) return;
            (*work_)(me);
            meet();
        }
    }

    int size_, working_;
    std::vector<std::thread> threads_;
    std::mutex mutex_;
    std::condition_variable wake_;
    std::atomic<unsigned> round_{0}, meeting_{0};
    std::atomic<int> arrived_{0}, taken_{0};
    std::atomic<bool> over_{false}, late_{false};
    std::atomic<Time> started_{Time{}};  // when all set out for the next meeting
    Time together_{};                    // from when on all work
    Span alone_ = LEAST;                 // how long the first one works alone next time
    const std::function<void(int)>* work_ = nullptr;
};

}  // namespace glass
