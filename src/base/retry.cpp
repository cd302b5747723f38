#include <rowlock/retry.hpp>

#include <condition_variable>
#include <mutex>

namespace rowlock::detail {

using std::chrono::milliseconds;

int attempt_counter::begin(time_point now) noexcept {
    begun_ = now;
    if (++number_ == 1) first_ = now;
    return number_;
}

std::optional<milliseconds> attempt_counter::fail(const error& failure, time_point now) {
    if (std::chrono::duration_cast<milliseconds>(now - begun_) > long_attempt_) {
        first_ = now;
        number_ = 1;
    }
    return policy_.next(failure, number_, std::chrono::duration_cast<milliseconds>(now - first_));
}

retry_step retry_until_stopped::judge(const error& failure) const noexcept {
    const bool again = failure.retryable() && !stop_.stop_requested();
    return again ? retry_step::repeat : retry_step::give_up;
}

retry_step retry_until_stopped::wait(milliseconds pause) const {
    std::mutex mutex;
    std::condition_variable_any wake;
    std::unique_lock lock{mutex};
    wake.wait_for(lock, stop_, pause, [] { return false; });
    return stop_.stop_requested() ? retry_step::give_up : retry_step::repeat;
}

}  // namespace rowlock::detail
