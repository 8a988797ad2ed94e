// A few threads that walk through the same work and wait for each other. They spin a little, then sleep: a core that
// somebody else needs is given away.
#pragma once
#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace glass {

class Team {
  public:
    explicit Team(int size) : size_(size < 1 ? 1 : size) {
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

    int size() const { return size_; }

    // Everybody does the work, each with a number of its own; back when all are done.
    void run(const std::function<void(int)>& work) {
        if (size_ == 1) return work(0);
        {
            std::lock_guard<std::mutex> lock(mutex_);
            work_ = &work;
            round_++;
        }
        wake_.notify_all();
        work(0);
        meet();
    }

    // Nobody passes before all have come.
    void meet() {
        if (size_ == 1) return;
        const unsigned now = meeting_.load(std::memory_order_acquire);
        if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
            arrived_.store(0, std::memory_order_relaxed);
            meeting_.store(now + 1, std::memory_order_release);
            return;
        }
        for (int tries = 0; meeting_.load(std::memory_order_acquire) == now; tries++) {
            if (tries < SPINS)
                pause();
            else
                std::this_thread::yield();
        }
    }

  private:
    static constexpr int SPINS = 4000;  // some tens of microseconds

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

    int size_;
    std::vector<std::thread> threads_;
    std::mutex mutex_;
    std::condition_variable wake_;
    std::atomic<unsigned> round_{0}, meeting_{0};
    std::atomic<int> arrived_{0};
    std::atomic<bool> over_{false};
    const std::function<void(int)>* work_ = nullptr;
};

}  // namespace glass
