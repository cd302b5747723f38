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

/// Threads that ask for the same kind of thing at the same time share one call. A thread that
/// arrives alone calls immediately. Threads that arrive during a call form a batch; its first
/// member makes the next call on behalf of all. Threads that were answered together wait for each
/// other. (Group commit: DeWitt et al., "Implementation Techniques for Main Memory Database
/// Systems", 1984.)
///
/// Thread-safe. No mutex is held during a call.
template <typename Ask, typename Answer>
class batcher {
public:
    using steady = std::chrono::steady_clock;

    struct item {
        Ask ask;
        std::optional<Answer> answer{};  ///< stays empty: ask alone
    };
    /// Answers items; an exception is rethrown to every thread whose item has no answer yet.
    using call = std::function<void(std::span<item* const>)>;

    /// @param calls concurrent calls  @param most items per call
    batcher(std::size_t calls, std::size_t most, call make)
        : calls_{calls}, most_{most}, make_{std::move(make)} {}
    batcher(const batcher&) = delete;
    batcher& operator=(const batcher&) = delete;
    ~batcher() = default;

    /// Returns the answer; nullopt if there is none, if no call with it began within `patience`, or
    /// if a call has been under way for longer: a hanging call delays no other thread.
    std::optional<Answer> ask(Ask what, steady::duration patience) {
        seat mine{{std::move(what)}};
        if (!base::uses(base::fast_path::batches)) {
            item* const alone = &mine;
            make_({&alone, 1});
            return result_of(mine);
        }
        switch (come(mine, patience)) {
            case stage::gathered:
                return std::nullopt;
            case stage::answered:
                return result_of(mine);
            default:
                break;
        }
        lead(mine);
        return result_of(mine);
    }

    /// Whether a caller would be alone now, as the last one was.
    [[nodiscard]] bool alone() const {
        const std::lock_guard lock{mutex_};
        return under_way_ == 0 && expected_ <= 1;
    }

    /// Threads that wait for a call to begin.
    [[nodiscard]] std::size_t gathered() const {
        const std::lock_guard lock{mutex_};
        return gathered_.size();
    }

private:
    enum class stage : unsigned char { gathered, taken, leading, answered };
    /// Lives as long as its thread's ask(). Its stage leaves `gathered` under the batcher's mutex;
    /// the thread that ends its wait holds the seat's mutex.
    struct seat : item {
        std::atomic<stage> now{stage::gathered};
        std::exception_ptr failure{};
        std::mutex mutex{};
        std::condition_variable changed{};
    };

    static std::optional<Answer> result_of(seat& mine) {
        if (mine.failure && !mine.answer) std::rethrow_exception(mine.failure);
        return std::move(mine.answer);
    }

    static void wake(seat& whom, stage next) {
        const std::lock_guard lock{whom.mutex};
        whom.now = next;
        whom.changed.notify_one();  // under the mutex: the seat may be gone afterwards
    }

    /// Returns `leading` if this thread must make a call, `gathered` if it has left.
    ///
    /// Threads that the last call answered together come back together: the first of them would
    /// call alone, and the others would wait for it. So it waits for as many threads as there were,
    /// at most as long as that call took, and the last of them makes the call. A thread that was
    /// alone the last time does not wait.
    stage come(seat& mine, steady::duration patience) {
        bool first = false;
        steady::duration company{};
        {
            const std::lock_guard lock{mutex_};
            const bool complete = gathered_.size() + 1 >= expected_;
            if (collecting_ && complete) {
                collecting_ = false;
                return stage::leading;
            }
            // That call hangs; it must not delay other threads.
            if (under_way_ == calls_ && !collecting_ && steady::now() - began_ > patience) {
                return stage::gathered;
            }
            first = !collecting_ && under_way_ < calls_;
            if (first && complete) {
                ++under_way_;
                return stage::leading;
            }
            gathered_.push_back(&mine);  // may fail: nothing is changed before it
            if (first) {
                ++under_way_;
                collecting_ = true;
                company = std::min(took_, longest_company);
            }
        }
        std::unique_lock lock{mine.mutex};
        const auto over = [&] { return mine.now >= stage::leading; };
        if (mine.changed.wait_for(lock, first ? company : patience, over)) return mine.now;
        lock.unlock();
        {
            const std::lock_guard all{mutex_};
            // If collecting has ended, the last of the threads has come and is about to take this
            // one along: two must not lead.
            if (mine.now == stage::gathered && (!first || collecting_)) {
                std::erase(gathered_, &mine);
                if (!first) return stage::gathered;
                collecting_ = false;
                return stage::leading;
            }
        }
        lock.lock();
        mine.changed.wait(lock, over);
        return mine.now;
    }

    /// Makes a call for `first` and the threads gathered by now.
    void lead(seat& first) {
        std::vector<seat*> seats;
        std::exception_ptr failure;
        auto began = steady::now();
        try {
            began = gather(first, seats);
            const std::vector<item*> items(seats.begin(), seats.end());
            make_(items);
        } catch (...) {
            failure = std::current_exception();
        }
        pass_on_lead(steady::now() - began);
        first.failure = failure;
        for (seat* each : seats) {
            if (each == &first) continue;
            each->failure = failure;
            wake(*each, stage::answered);
        }
    }

    steady::time_point gather(seat& first, std::vector<seat*>& seats) {
        const std::lock_guard lock{mutex_};
        began_ = steady::now();
        const std::size_t count = std::min(most_, gathered_.size() + 1);
        seats.reserve(count);
        seats.push_back(&first);
        expected_ = count;
        while (seats.size() < count) {
            seats.push_back(gathered_.front());
            gathered_.front()->now = stage::taken;
            gathered_.pop_front();
        }
        return began_;
    }

    /// Called before the answered threads are woken.
    void pass_on_lead(steady::duration took) {
        seat* next = nullptr;
        {
            const std::lock_guard lock{mutex_};
            took_ = took;
            if (gathered_.empty()) {
                --under_way_;
                return;
            }
            next = gathered_.front();
            gathered_.pop_front();
            next->now = stage::taken;  // it can no longer leave
        }
        wake(*next, stage::leading);
    }

    static constexpr steady::duration longest_company = std::chrono::milliseconds{1};

    const std::size_t calls_;
    const std::size_t most_;
    const call make_;
    mutable std::mutex mutex_;
    std::size_t under_way_ = 0;
    bool collecting_ = false;     ///< the first thread of a call waits for the others
    std::size_t expected_ = 0;    ///< size of the last batch
    steady::duration took_{0};    ///< duration of the last call
    steady::time_point began_{};  ///< start of the latest call
    std::deque<seat*> gathered_;
};

}  // namespace rowlock::detail
