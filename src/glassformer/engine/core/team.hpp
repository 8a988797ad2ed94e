// A small thread pool: all threads run the same function and wait for each other at barriers. They spin a little, then sleep: a
// core that another program needs is given away. The calling thread waits for no other long: until sleeping ones are awake it works
// alone, and for a while after another program has held one back.
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

#if defined(__linux__)
#include <sched.h>
#endif

namespace glass {

// Linux may wake a thread on the core of the one that called it, though another is idle, and leave both there for milliseconds.
#if defined(__linux__)
inline int current_core() { return sched_getcpu(); }

inline void leave_core(int core) {
    cpu_set_t allowed;
    if (core < 0 || sched_getcpu() != core || sched_getaffinity(0, sizeof allowed, &allowed)) return;
    cpu_set_t others = allowed;
    CPU_CLR(static_cast<unsigned>(core), &others);
    if (CPU_COUNT(&others) && !sched_setaffinity(0, sizeof others, &others)) sched_setaffinity(0, sizeof allowed, &allowed);
}
#else
inline int current_core() { return -1; }
inline void leave_core(int) {}
#endif

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
        active_ = size_ > 1 && now >= parallel_from_ && all_awake() ? size_ : 1;
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

    // work(begin, end) for pieces of 0..total, each taken by the first free thread; all are done at the next barrier. A piece is a
    // thread's share of what is left: the first are large, because each begins where nothing has been fetched yet, and the last are
    // small, so that no thread waits long for another. Long work is for `parts` of a share: another program may hold a thread back.
    template <typename Work>
    void parallel_for(int total, int unit, const Work& work, int parts = 1) {
        if (active_ == 1) return work(0, total);
        for (int begin = next_.load(std::memory_order_relaxed); begin < total;) {
            const int left = (total - begin + unit - 1) / unit, units = std::max(1, left / (parts * active_));
            const int end = std::min(total, begin + units * unit);
            if (!next_.compare_exchange_weak(begin, end, std::memory_order_relaxed)) continue;
            work(begin, end);
            begin = next_.load(std::memory_order_relaxed);
        }
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
    static constexpr int SPINS = 4000;  // some tens of microseconds
    static constexpr Span AWAKE = std::chrono::milliseconds(2);  // after its work: the next token's comes soon
    static constexpr Span WAKING = std::chrono::microseconds(60);  // which an idle core takes; one that a host has lent out takes longer
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

    // Sleeping threads are called, and waited for a little.
    bool all_awake() {
        if (asleep_.load(std::memory_order_acquire) == 0) return true;
        {
            std::lock_guard<std::mutex> lock(mutex_);
            calls_++;
            callers_core_ = current_core();
        }
        wake_.notify_all();
        for (const Time begun = Clock::now(); Clock::now() - begun < WAKING; pause())
            if (asleep_.load(std::memory_order_acquire) == 0) return true;
        return false;
    }

    static void pause() {
#if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
#endif
    }

    // Work comes within the time that a thread stays awake.
    bool comes(unsigned seen) {
        for (int tries = 0; tries < SPINS; tries++, pause())
            if (epoch_.load(std::memory_order_acquire) != seen) return true;
        for (const Time idle = Clock::now(); Clock::now() - idle < AWAKE; std::this_thread::yield())
            if (epoch_.load(std::memory_order_acquire) != seen) return true;
        return false;
    }

    // Until there is work, or a call that it will come.
    void sleep(unsigned seen) {
        std::unique_lock<std::mutex> lock(mutex_);
        asleep_++;
        wake_.wait(lock, [this, seen, before = calls_] { return calls_ != before || epoch_.load(std::memory_order_relaxed) != seen; });
        const int core = callers_core_;
        lock.unlock();
        leave_core(core);
        asleep_--;
    }

    void worker(int me) {
        unsigned seen = 0;
        for (;;) {
            while (!comes(seen)) sleep(seen);
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
    std::atomic<int> arrived_{0}, next_{0}, asleep_{0};
    unsigned calls_ = 0;  // of sleeping threads
    int callers_core_ = -1;
    std::atomic<bool> stopping_{false}, late_{false};
    std::atomic<Time> started_{Time{}};  // when the last barrier was passed
    Time parallel_from_{};               // before this time, the calling thread works alone
    Span backoff_ = LEAST;               // for how long, the next time a thread is late
    const std::function<void(int)>* work_ = nullptr;
};

}  // namespace glass
