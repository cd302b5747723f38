#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace rowlock::detail {

/// Whether the next grant of a name is likely to reach this client by a wake-up, judged by the
/// latest ones: then a waiter need not poll at once. After each grant that a poll found, twice as
/// many in a row have to come by wake-ups before they are relied on again, up to 1 024; where some
/// clients cannot wake this one, few waits are long. Only times depend on it. Thread-safe.
class wakeup_trust {
public:
    /// How the latest grant was found.
    enum class way : unsigned char {
        poll,          ///< or none was found since the session or a connection is new
        interruption,  ///< of a sleep in the server
        message,       ///< which names the grant
    };

    /// A wake-up told of a grant, after a wait of that time.
    void woken(std::string_view name, way how, std::chrono::nanoseconds waited);
    /// A poll, or the end of a wait, found a grant.
    void missed() noexcept;
    /// Another session, or another connection.
    void start_anew() noexcept;

    [[nodiscard]] way latest() const noexcept;
    /// The time of the latest wait for that name; nullopt if no wake-up is to be relied on.
    [[nodiscard]] std::optional<std::chrono::nanoseconds> expects(
        std::string_view name) const noexcept;

private:
    static constexpr std::uint32_t most_needed = 1024;
    /// A miss is forgotten after so many times as many wake-ups as it costs.
    static constexpr std::uint32_t forgiven_after = 16;

    mutable std::mutex mutex_;
    std::string name_{};
    way latest_ = way::poll;
    std::uint32_t in_a_row_ = 0;  ///< grants of that name that wake-ups told of; 0 after a miss
    std::uint32_t needed_ = 1;
    std::chrono::nanoseconds waited_{0};
};

}  // namespace rowlock::detail
