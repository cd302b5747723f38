#pragma once

#include "random.hpp"

#include <array>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

/// The whole client under a deterministic scheduler. README.md is the tour.
namespace rowlock::sim {

struct thread;

/// A simulated process on a simulated machine.
struct node {
    int id = 0;
    i64 host = 0;         ///< nodes of one host reach each other's mailboxes
    double rate = 1;      ///< of its monotonic clock: seconds of it in a true second
    i64 origin = 0;       ///< of its monotonic clock: what it shows at true time 0
    bool paused = false;  ///< as by SIGSTOP: its clock goes on
    bool killed = false;  ///< as by SIGKILL: nothing is unwound
    double stall = 0;     ///< chance that a thread that gives way loses its processor for a while
    i64 longest_stall = 0;
    std::vector<thread*> parked = {};  ///< runnable, while it is paused

    /// What its monotonic clock shows at a true time.
    [[nodiscard]] i64 local(i64 true_time) const noexcept {
        return origin + static_cast<i64>(static_cast<double>(true_time) * rate);
    }
    /// The first true time at which local() has reached this.
    [[nodiscard]] i64 truth(i64 local_time) const noexcept;
};

/// How the next thread is chosen, and how often one gives way.
struct policy {
    double switch_at_lock = 0.2;     ///< before a mutex is locked
    double switch_at_unlock = 0.05;  ///< after it was unlocked
    double spurious_wake_up = 0;     ///< that a wait on a condition variable returns for nothing
    /// 0: each choice is uniform. Otherwise threads have random priorities, and at so many random
    /// steps one is lowered (Burckhardt et al., "probabilistic concurrency testing").
    int priority_changes = 0;
    u64 expected_steps = 200'000;  ///< the changes fall within them
};

/// Runs simulated threads one at a time, on one real thread. Which is next, and all else that is
/// random, comes from one seed. Time is virtual: code takes none, and it moves to the next timer
/// when no thread can run.
///
/// *True time* is this clock's: nanoseconds since the beginning. Code sees the clock of its node.
class scheduler {
public:
    scheduler(u64 seed, policy choosing);
    ~scheduler();
    scheduler(const scheduler&) = delete;
    scheduler& operator=(const scheduler&) = delete;

    node& add_node(i64 host, double clock_rate, i64 clock_origin);
    /// All nodes. The first is no simulated process: what runs on no thread reads its clock.
    [[nodiscard]] const std::vector<std::unique_ptr<node>>& nodes() const noexcept {
        return nodes_;
    }
    /// Starts a thread of that process. Returns its number, never 0.
    /// @param name empty: made of the number
    u64 spawn(node& home, std::function<void()> code, std::string name = {});
    /// Calls this at a true time, on no thread: it must not wait.
    void at(i64 true_time, std::function<void()> call);
    void after(i64 delay, std::function<void()> call) { at(now_ + delay, std::move(call)); }

    /// Runs until `done` returns true. False if that does not come: no thread can run and no timer
    /// is set (a deadlock), or the true time passes `limit`.
    [[nodiscard]] bool run(const std::function<bool()>& done, i64 limit);

    [[nodiscard]] i64 now() const noexcept { return now_; }
    /// The node of the running thread.
    [[nodiscard]] node& here() noexcept;
    /// The number of the running thread; 0: none runs.
    [[nodiscard]] u64 current() const noexcept;
    /// Calls this with the clock of another node. Nothing gives way meanwhile.
    template <typename Call>
    auto as(node& other, const Call& call) {
        read_as_ = &other;
        auto answer = call();
        read_as_ = nullptr;
        return answer;
    }

    /// @name For the running thread
    /// @{
    void give_way();  ///< another may be chosen
    void give_way_at(double chance);
    /// Sleeps until one of these addresses is woken, or a true time. False: it was the time.
    using addresses = std::array<const void*, 5>;
    bool block(const addresses& on, i64 until);
    bool block(const void* on, i64 until) { return block(addresses{on}, until); }
    void sleep_until(i64 true_time) { block(nullptr, true_time); }
    void join(u64 number);
    void at_exit(void (*destroy)(void*), void* object);
    void rename(std::string name);  ///< for people
    /// @}
    void wake_all(const void* on);
    void wake_one(const void* on);  ///< any of them

    void pause(node& process);
    void resume(node& process);
    void kill(node& process);  ///< not from one of its threads

    /// Adds a number to the trace.
    void note(u64 number) noexcept {
        trace_ = (trace_ ^ number) * 0x100000001b3ULL;
        trace_ ^= trace_ >> 29;
    }
    /// A hash over each choice with its time: two runs with one trace were the same.
    [[nodiscard]] u64 trace() const noexcept { return trace_; }
    /// Writes a line with the true time, the node and the thread to `prints`, if it is not null.
    void log(const std::string& line);
    std::FILE* prints = nullptr;
    [[nodiscard]] u64 steps() const noexcept { return steps_; }
    /// The threads that have not ended: a line each.
    [[nodiscard]] std::string describe() const;
    void print_stacks();

    random choices;  ///< of the scheduler
    random draws;    ///< for the product (ids, jitter) and the simulated machines
    const policy how;

private:
    struct timer;

    void make_runnable(thread& which);
    void take_off();
    void run_next_timer();
    thread& choose();
    void forget(thread& which);
    void set(timer next);

    std::vector<std::unique_ptr<node>> nodes_;
    std::vector<std::unique_ptr<thread>> threads_;  ///< that have not ended
    std::vector<thread*> runnable_;
    thread* current_ = nullptr;
    node* read_as_ = nullptr;
    std::vector<timer> timers_;  ///< a heap
    std::vector<std::function<void()>> calls_;
    std::vector<std::size_t> free_calls_;
    std::vector<u64> change_points_;  ///< of priorities, by steps, the last first
    i64 now_ = 0;
    u64 trace_ = 0xcbf29ce484222325ULL;
    u64 steps_ = 0, last_number_ = 0, last_timer_ = 0;
};

/// The simulation that runs, or null.
extern scheduler* world;

}  // namespace rowlock::sim
