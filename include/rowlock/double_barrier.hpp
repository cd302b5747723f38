#pragma once

#include <rowlock/latch.hpp>

#include <chrono>
#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <utility>

namespace rowlock {

/// @addtogroup meetings
/// @{

/// Options of a double_barrier, the same for all that enter.
struct barrier_options {
    /// Before the barrier opens, and until all have left.
    party_loss on_loss = party_loss::breaks;
};

/// How far a generation is.
enum class barrier_state : unsigned char {
    filling,  ///< not all have entered
    open,     ///< all have entered, and not all have left
    empty,    ///< all have left
    broken,   ///< a party was lost before the barrier opened, or before it had left
};
/// The name of the enumerator.
[[nodiscard]] const char* to_string(barrier_state state) noexcept;

/// A snapshot of one generation, for display.
struct barrier_info {
    std::int64_t generation = 0;                   ///< its number
    barrier_state state = barrier_state::filling;  ///< how far it is
    std::int64_t parties = 0;                      ///< how many open it
    std::int64_t entered = 0;                      ///< parties, up to now
    std::int64_t left = 0;                         ///< parties, up to now
};

/// A party that is inside a double barrier. Its destructor departs without waiting for the others.
/// One thread at a time; in a forked child it is inert.
class [[nodiscard]] barrier_party {
public:
    /// `other` is no party then.
    barrier_party(barrier_party&&) noexcept = default;
    /// Departs first, as the destructor does.
    barrier_party& operator=(barrier_party&&) noexcept = default;
    /// Takes at most statement_timeout; what fails then is repeated in the background.
    ~barrier_party() = default;

    /// The number of the generation that it belongs to.
    [[nodiscard]] std::int64_t generation() const noexcept;

    /// Departs, and waits until all parties of this generation have departed. To repeat it after an
    /// error is safe.
    /// @throws error errc::broken if a party was lost before it had departed
    void leave();
    /// The same; false if and only if `stop` was requested first. It has departed then, or does so
    /// when it is destroyed.
    template <std::same_as<std::stop_token> Stop>
    [[nodiscard]] bool leave(Stop stop) {
        return leave_until(time_point::max(), stop);
    }
    /// Waits up to `timeout`, or until `stop` is requested; likewise.
    template <typename Rep, typename Period>
    [[nodiscard]] bool leave_for(const std::chrono::duration<Rep, Period>& timeout,
                                 const std::stop_token& stop = {}) {
        return leave_until(detail::after(timeout), stop);
    }

private:
    friend class double_barrier;
    using time_point = std::chrono::steady_clock::time_point;
    explicit barrier_party(std::shared_ptr<detail::round_member> party) noexcept
        : party_{std::move(party)} {}
    bool leave_until(time_point until, const std::stop_token& stop);

    std::shared_ptr<detail::round_member> party_;
};

/// Brings a number of parties together before a piece of work, and again after it:
///
///     rowlock::double_barrier step{locks, "step", 4};
///     auto inside = step.enter();   // until four have entered
///     work();
///     inside.leave();               // until the four have departed
///
/// The four are one generation, with a number greater than that of all before; the next to enter
/// begin another. All parties of a generation get the same two answers, each of which is given
/// once: it opened or it broke, and all departed or one was lost before. Otherwise as latch.
class double_barrier {
public:
    /// @param parties 1 to 1 000 000, the same for all that enter. No round trip.
    /// @throws error errc::invalid_name, errc::invalid_options
    double_barrier(client& locks, const lock_name& name, std::int64_t parties,
                   const barrier_options& options = {});

    /// Enters, and waits until all parties have entered. Seven to ten round trips, four more for
    /// the first of a name, and one a poll.
    /// @throws error errc::broken if the barrier broke meanwhile: enter again;
    /// errc::invalid_options if parties of another number, or with other options, have entered and
    /// wait. After an error the entry is taken back, in the background if it must be
    [[nodiscard]] barrier_party enter();
    /// The same; empty if and only if `stop` was requested first, and the entry was taken back.
    template <std::same_as<std::stop_token> Stop>
    [[nodiscard]] std::optional<barrier_party> enter(Stop stop) {
        return enter_until(time_point::max(), stop);
    }
    /// Waits up to `timeout`, or until `stop` is requested; empty if the entry was taken back then.
    /// If the barrier opened at the last moment, this party is in.
    template <typename Rep, typename Period>
    [[nodiscard]] std::optional<barrier_party> enter_for(
        const std::chrono::duration<Rep, Period>& timeout, const std::stop_token& stop = {}) {
        return enter_until(detail::after(timeout), stop);
    }

    /// Breaks the latest generation if it still fills. Returns whether it did. Seven round trips.
    bool reset();
    /// The latest generation, or that one; empty if there is none. One round trip.
    [[nodiscard]] std::optional<barrier_info> inspect(std::int64_t generation = 0);

private:
    using time_point = std::chrono::steady_clock::time_point;
    std::optional<barrier_party> enter_until(time_point until, const std::stop_token& stop);

    client* locks_;
    lock_name name_;
    std::int64_t parties_;
    barrier_options options_;
};

/// @}

}  // namespace rowlock
