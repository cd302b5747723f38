#pragma once

#include "base/ablation.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace rowlock::detail {

/// Threads that make the same kind of request at the same time share one call. A few, for which
/// there are connections, call each for itself at once, until more come together. Threads
/// that arrive during a call form a batch; its first member makes the next call on behalf of all.
/// Threads that were answered together wait for each other. (Group commit: DeWitt et al.,
/// "Implementation Techniques for Main Memory Database Systems", 1984.)
///
/// Thread-safe. No mutex is held during a call.
template <typename Call, typename Answer>
class batcher {
public:
    using steady = std::chrono::steady_clock;

    struct item {
        Call call;
        std::optional<Answer> answer{};  ///< stays empty: call alone
        bool left_out = false;           ///< was no part of the call: its failure is another's
    };
    /// Answers items; an exception is rethrown to every thread whose item has no answer yet.
    using sender = std::function<void(std::span<item* const>)>;

    /// @param calls concurrent calls for batches  @param most items per call
    /// @param few so many threads call each for itself
    batcher(std::size_t calls, std::size_t most, sender send, std::size_t few = 1)
        : calls_{calls}, most_{most}, few_{few}, send_{std::move(send)} {}
    batcher(const batcher&) = delete;
    batcher& operator=(const batcher&) = delete;
    ~batcher() = default;

    /// Returns the answer; nullopt if there is none, if no call with it began within `patience`, or
    /// if a call has been under way for longer: a hanging call delays no other thread.
    std::optional<Answer> submit(Call what, steady::duration patience) {
        member mine{{std::move(what)}};
        const presence here{inside_};
        if (!base::uses(base::fast_path::batches) || are_few(here.with_others)) {
            item* const alone = &mine;
            send_({&alone, 1});
            return result_of(mine);
        }
        switch (join_or_lead(mine, patience)) {
            case stage::pending:
                return std::nullopt;
            case stage::answered:
                return result_of(mine);
            default:
                break;
        }
        run_batch(mine);
        return result_of(mine);
    }

    /// Threads that wait for a call to begin.
    [[nodiscard]] std::size_t pending() const {
        const std::lock_guard lock{mutex_};
        return pending_.size();
    }

private:
    enum class stage : unsigned char { pending, taken, leading, answered };
    /// Lives as long as its thread's submit(). Its stage leaves `pending` under the batcher's
    /// mutex; the thread that ends its wait holds the member's mutex.
    struct member : item {
        std::atomic<stage> now{stage::pending};
        std::exception_ptr failure{};
        std::mutex mutex{};
        std::condition_variable changed{};
    };

    /// Counts a thread in submit().
    struct presence {
        explicit presence(std::atomic<std::size_t>& of) : inside{of}, with_others{++of} {}
        presence(const presence&) = delete;
        presence& operator=(const presence&) = delete;
        ~presence() { --inside; }
        std::atomic<std::size_t>& inside;
        const std::size_t with_others;
    };

    /// Threads that a batch has answered come back one after the other: the first of them are few,
    /// and yet no reason to end batches. So it takes more threads to begin them than to go on.
    bool are_few(std::size_t inside) {
        if (few_ <= 1 || !base::uses(base::fast_path::lone_calls)) return false;
        const std::lock_guard lock{mutex_};
        crowded_ = crowded_ || inside > few_;
        if (!crowded_ && inside == 1) expected_ = 1;
        return !crowded_;
    }

    static std::optional<Answer> result_of(member& mine) {
        if (mine.failure && !mine.answer && !mine.left_out) std::rethrow_exception(mine.failure);
        return std::move(mine.answer);
    }

    static void wake(member& whom, stage next) {
        const std::lock_guard lock{whom.mutex};
        whom.now = next;
        whom.changed.notify_one();  // under the mutex: the member may be gone afterwards
    }

    /// Returns `leading` if this thread must make a call, `pending` if it has left.
    ///
    /// Threads that the last call answered together come back together: the first of them would
    /// call alone, and the others would wait for it. So it waits for as many threads as there were,
    /// at most as long as that call took, and the last of them makes the call. A thread that was
    /// alone the last time does not wait.
    stage join_or_lead(member& mine, steady::duration patience) {
        bool first = false;
        steady::duration collection{};
        {
            const std::lock_guard lock{mutex_};
            const bool complete = pending_.size() + 1 >= expected_;
            if (collecting_ && complete) {
                collecting_ = false;
                return stage::leading;
            }
            // That call hangs; it must not delay other threads.
            if (under_way_ == calls_ && !collecting_ && steady::now() - began_ > patience) {
                return stage::pending;
            }
            first = !collecting_ && under_way_ < calls_;
            if (first && complete) {
                ++under_way_;
                return stage::leading;
            }
            pending_.push_back(&mine);  // may fail: nothing is changed before it
            if (first) {
                ++under_way_;
                collecting_ = true;
                collection = std::min(took_, longest_collection);
            }
        }
        std::unique_lock lock{mine.mutex};
        const auto over = [&] { return mine.now >= stage::leading; };
        if (mine.changed.wait_for(lock, first ? collection : patience, over)) return mine.now;
        lock.unlock();
        {
            const std::lock_guard all{mutex_};
            // If collecting has ended, the last of the threads has come and is about to take this
            // one along: two must not lead.
            if (mine.now == stage::pending && (!first || collecting_)) {
                std::erase(pending_, &mine);
                if (!first) return stage::pending;
                collecting_ = false;
                return stage::leading;
            }
        }
        lock.lock();
        mine.changed.wait(lock, over);
        return mine.now;
    }

    /// Makes a call for `first` and the threads that are pending by now.
    void run_batch(member& first) {
        std::vector<member*> members;
        std::exception_ptr failure;
        auto began = steady::now();
        try {
            began = take_batch(first, members);
            const std::vector<item*> items(members.begin(), members.end());
            send_(items);
        } catch (...) {
            failure = std::current_exception();
        }
        start_next_batch(steady::now() - began);
        first.failure = failure;
        for (member* each : members) {
            if (each == &first) continue;
            each->failure = failure;
            wake(*each, stage::answered);
        }
    }

    steady::time_point take_batch(member& first, std::vector<member*>& members) {
        const std::lock_guard lock{mutex_};
        began_ = steady::now();
        const std::size_t count = std::min(most_, pending_.size() + 1);
        members.reserve(count);
        members.push_back(&first);
        expected_ = count;
        while (members.size() < count) {
            members.push_back(pending_.front());
            pending_.front()->now = stage::taken;
            pending_.pop_front();
        }
        return began_;
    }

    /// Called before the answered threads are woken.
    void start_next_batch(steady::duration took) {
        member* next = nullptr;
        {
            const std::lock_guard lock{mutex_};
            took_ = took;
            if (pending_.empty()) {
                --under_way_;
                if (expected_ <= few_ / 2) crowded_ = false;
                return;
            }
            next = pending_.front();
            pending_.pop_front();
            next->now = stage::taken;  // it can no longer leave
        }
        wake(*next, stage::leading);
    }

    static constexpr steady::duration longest_collection = std::chrono::milliseconds{1};

    const std::size_t calls_;
    const std::size_t most_;
    const std::size_t few_;
    const sender send_;
    std::atomic<std::size_t> inside_{0};
    mutable std::mutex mutex_;
    std::size_t under_way_ = 0;
    bool crowded_ = false;        ///< more than a few threads have met
    bool collecting_ = false;     ///< the first thread of a call waits for the others
    std::size_t expected_ = 0;    ///< size of the last batch
    steady::duration took_{0};    ///< duration of the last call
    steady::time_point began_{};  ///< start of the latest call
    std::deque<member*> pending_;
};

}  // namespace rowlock::detail
