#pragma once

#include <rowlock/error.hpp>
#include <rowlock/lease.hpp>
#include <rowlock/shared_mutex.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

namespace rowlock::detail {

class engine;
struct grant;

/// What a mode_lease holds: a grant, and one more for each upgrade that was not taken back. The sum
/// of their permits is what the mode takes. One thread at a time changes it; any thread may ask.
class mode_grants {
public:
    mode_grants(lease hold, lock_mode mode);
    /// @param holds of one client, the oldest first, with their permits: those of the mode together
    mode_grants(std::vector<std::pair<lease, std::int64_t>> holds, lock_mode mode);

    [[nodiscard]] const std::string& name() const noexcept;
    [[nodiscard]] lock_mode mode() const noexcept;
    [[nodiscard]] fencing_token token() const noexcept;
    [[nodiscard]] bool held() const noexcept;
    [[nodiscard]] std::chrono::milliseconds remaining() const noexcept;
    [[nodiscard]] std::stop_token lost() const;
    [[nodiscard]] std::stop_token release_requested() const;
    [[nodiscard]] std::optional<release_request> request() const;
    [[nodiscard]] std::pair<session_id, grant_id> latest() const noexcept;

    void release();
    void extend(std::chrono::milliseconds duration);
    bool upgrade(std::chrono::steady_clock::time_point until, const std::stop_token& stop);
    void downgrade(lock_mode to);
    /// All of them, from the oldest on.
    [[nodiscard]] std::vector<std::shared_ptr<grant>> all() const;

    [[nodiscard]] static error not_held();

private:
    struct stop_it {
        std::stop_source source;
        void operator()() const { source.request_stop(); }
    };
    using on_stop = std::stop_callback<stop_it>;

    struct part {
        lease hold;
        std::int64_t permits;
        bool shrinking;  ///< the table may have a greater number
        std::unique_ptr<on_stop> watch;
    };

    void require_held() const;
    void require_all_held() const;  ///< under the guard
    void give_up_last(lock_mode from, lock_mode to);
    void finish_shrinking(engine& by);
    [[nodiscard]] std::int64_t permits() const noexcept;
    [[nodiscard]] std::unique_ptr<on_stop> watch(const lease& one);

    /// Of what other threads read, when it is changed. Never held over a round trip.
    mutable std::mutex guard_;
    lock_mode mode_;
    std::stop_source lost_{};  ///< after an upgrade: stops when any part is lost
    std::vector<part> parts_{};
};

}  // namespace rowlock::detail
