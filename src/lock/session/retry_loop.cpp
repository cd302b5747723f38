#include "lock/session/retry_loop.hpp"

#include <string>

namespace rowlock::detail {

retry_step retry_loop::caller::judge(const error& failure) const noexcept {
    const bool unknown = failure.kind() == errc::outcome_unknown;
    if (unknown) loop_.context_.count(counter::unknown_outcomes);
    return failure.retryable() || unknown ? retry_step::repeat : retry_step::give_up;
}

retry_step retry_loop::caller::wait(std::chrono::milliseconds time) const {
    if (now() + time >= within_.last_start) return retry_step::give_up;
    loop_.context_.count(counter::retries);
    return loop_.pause(time, stop_) ? retry_step::repeat : retry_step::stop;
}

bool retry_loop::pause(nanoseconds time, const std::stop_token& stop) {
    std::unique_lock lock{pause_mutex_};
    pause_.wait_for(lock, stop, time, [this] { return closed_.load(); });
    return !stop.stop_requested();
}

retry_loop::steady::time_point retry_loop::failure_deadline(steady::time_point until) const {
    const auto& options = context_.options;
    const auto now = steady::now();
    return std::min(std::max(until, now + options.statement_timeout),
                    now + options.retry.total + options.statement_timeout);
}

error retry_loop::unknown_after(const error& failure) {
    return {errc::outcome_unknown,
            std::string{"an attempt was not answered, and may count; the next failed: "} +
                failure.what(),
            {failure.sqlstate(), failure.native_code(), failure.server_message()}};
}

void retry_loop::close() noexcept {
    {
        const std::lock_guard lock{pause_mutex_};
        closed_ = true;
    }
    pause_.notify_all();
}

}  // namespace rowlock::detail
