#pragma once

#include <algorithm>
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

namespace rowlock::service {

/// Threads that ask for the same kind of thing at the same moment share one call. Who finds a call
/// to be made makes it at once, with nobody waited for; who comes while all calls are under way is
/// gathered, and the next call is made, by the first of them, for all. (Group commit: DeWitt et
/// al., "Implementation Techniques for Main Memory Database Systems", 1984.)
///
/// Thread-safe. Nothing is locked during a call.
template <typename Ask, typename Answer>
class gathering {
public:
    using steady = std::chrono::steady_clock;

    struct item {
        Ask ask;
        std::optional<Answer> answer{};  ///< stays empty: ask alone
    };
    /// Answers items; what it throws is thrown to all of them.
    using call = std::function<void(std::span<item* const>)>;

    /// @param calls how many at a time  @param most how many items each
    gathering(std::size_t calls, std::size_t most, call make)
        : calls_{calls}, most_{most}, make_{std::move(make)} {}
    gathering(const gathering&) = delete;
    gathering& operator=(const gathering&) = delete;
    ~gathering() = default;

    /// The answer; nothing if there is none, or if no call began with it within `patience`: calls
    /// that hang hold up nobody else.
    std::optional<Answer> ask(Ask what, steady::duration patience) {
        seat mine{{std::move(what)}};
        {
            std::unique_lock lock{mutex_};
            if (under_way_ < calls_) {
                ++under_way_;
            } else {
                gathered_.push_back(&mine);
                const auto begun = [&] { return mine.now != stage::gathered; };
                if (!mine.changed.wait_for(lock, patience, begun)) {
                    std::erase(gathered_, &mine);
                    return std::nullopt;
                }
                mine.changed.wait(lock, [&] { return mine.now != stage::taken; });
                if (mine.now == stage::answered) return result_of(mine);
            }
        }
        lead(mine);
        return result_of(mine);
    }

    /// How many wait for a call to begin.
    [[nodiscard]] std::size_t gathered() const {
        const std::lock_guard lock{mutex_};
        return gathered_.size();
    }

private:
    enum class stage : unsigned char { gathered, taken, leading, answered };
    struct seat : item {
        stage now = stage::gathered;
        std::exception_ptr failure{};
        std::condition_variable changed{};
    };

    static std::optional<Answer> result_of(seat& mine) {
        if (mine.failure) std::rethrow_exception(mine.failure);
        return std::move(mine.answer);
    }

    /// Makes a call for `first` and whoever is gathered by now.
    void lead(seat& first) {
        std::vector<seat*> seats;
        std::vector<item*> items;
        std::exception_ptr failure;
        try {
            gather(first, seats);
            items.assign(seats.begin(), seats.end());
            make_(items);
        } catch (...) {
            failure = std::current_exception();
        }
        const std::lock_guard lock{mutex_};
        // Whoever leads next is woken first: the others have what they want already.
        if (gathered_.empty()) {
            --under_way_;
        } else {
            seat& next = *gathered_.front();
            gathered_.pop_front();
            next.now = stage::leading;
            next.changed.notify_one();
        }
        first.failure = failure;
        for (seat* each : seats) {
            if (each == &first) continue;
            each->failure = failure;
            each->now = stage::answered;
            each->changed.notify_one();
        }
    }

    void gather(seat& first, std::vector<seat*>& seats) {
        const std::lock_guard lock{mutex_};
        const std::size_t count = std::min(most_, gathered_.size() + 1);
        seats.reserve(count);
        seats.push_back(&first);
        while (seats.size() < count) {
            seats.push_back(gathered_.front());
            gathered_.front()->now = stage::taken;
            gathered_.pop_front();
        }
    }

    const std::size_t calls_;
    const std::size_t most_;
    const call make_;
    mutable std::mutex mutex_;
    std::size_t under_way_ = 0;
    std::deque<seat*> gathered_;
};

}  // namespace rowlock::service
