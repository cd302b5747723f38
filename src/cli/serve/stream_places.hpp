#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <list>
#include <memory>
#include <mutex>

namespace rowlock::cli::serving {

/// The places for streams to pages. A page that nobody reads any more cannot be told from one that
/// is: when all places are taken, the stream that has lasted longest leaves its place to a new one,
/// and its page, if there is one, asks again. Thread-safe.
class stream_places {
public:
    using clock = std::chrono::steady_clock;

    class place {
    public:
        /// Whether another stream has it.
        [[nodiscard]] bool is_taken() const noexcept { return taken_; }

    private:
        friend stream_places;
        std::atomic<bool> taken_{false};
        const clock::time_point began_ = clock::now();
    };
    using pointer = std::shared_ptr<place>;

    explicit stream_places(std::size_t most) : most_{most} {}

    /// Null if all are taken, and none for long.
    [[nodiscard]] pointer take() {
        const std::lock_guard lock{mutex_};
        if (places_.size() >= most_) {
            const auto& oldest = places_.front();
            if (clock::now() - oldest->began_ < least_time) return nullptr;
            oldest->taken_ = true;
            places_.pop_front();
        }
        return places_.emplace_back(std::make_shared<place>());
    }
    void leave(const pointer& one) {
        const std::lock_guard lock{mutex_};
        places_.remove(one);
    }

private:
    /// What a stream has in any case: too many pages take turns, and not all the time.
    static constexpr std::chrono::seconds least_time{5};

    const std::size_t most_;
    std::mutex mutex_;
    std::list<pointer> places_;  ///< the oldest first
};

}  // namespace rowlock::cli::serving
