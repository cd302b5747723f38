#pragma once

#include <rowlock/client.hpp>
#include <rowlock/timeout.hpp>

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

/// What becomes of a latch or a double barrier if a party of it vanishes before it has done its
/// part: its process dies, its client loses the session or is destroyed.
enum class party_loss : unsigned char {
    breaks,  ///< all that wait get errc::broken
    counts,  ///< as if it had arrived, or departed
};

/// How far a generation is.
enum class latch_state : unsigned char {
    closed,  ///< arrivals are missing
    open,    ///< all have arrived
    broken,  ///< a party was lost, or it was reset
};
/// The name of the enumerator.
[[nodiscard]] const char* to_string(latch_state state) noexcept;

/// Options of one generation, for latch::begin().
struct latch_options {
    party_loss on_loss = party_loss::breaks;  ///< what the loss of a party means
};

/// A snapshot of one generation, for display.
struct latch_info {
    std::int64_t generation = 0;              ///< its number
    latch_state state = latch_state::closed;  ///< how far it is
    std::int64_t count = 0;                   ///< how many arrivals open it
    std::int64_t arrived = 0;                 ///< lost parties included that count
    std::int64_t registered = 0;              ///< parties that have not arrived yet
};

namespace detail {
struct round_member;
}

/// A party of a latch: has to arrive. If it is destroyed before, or its client is, or its process
/// dies, it counts as lost. One thread at a time; in a forked child it is inert.
class [[nodiscard]] latch_party {
public:
    /// `other` is no party then.
    latch_party(latch_party&&) noexcept = default;
    /// Gives up the party it was before, as the destructor does.
    latch_party& operator=(latch_party&&) noexcept = default;
    /// Takes at most statement_timeout; what fails then is repeated in the background.
    ~latch_party() = default;

    /// The number of the generation that it belongs to.
    [[nodiscard]] std::int64_t generation() const noexcept;
    /// Counts, once: to repeat it after an error is safe. Six or seven round trips.
    /// @throws error errc::broken if the latch is broken
    void arrive();

private:
    friend class latch;
    explicit latch_party(std::shared_ptr<detail::round_member> party) noexcept
        : party_{std::move(party)} {}

    std::shared_ptr<detail::round_member> party_;
};

/// Holds back any number of threads, processes and machines until so many things are done:
///
///     rowlock::latch warm{locks, "caches-warm"};
///     warm.begin(3);                // one process, or each: the first begins
///     auto part = warm.join();      // this process is one of the three
///     fill_the_cache();
///     part.arrive();
///     warm.wait();                  // until the three have arrived
///
/// A latch is used again and again: each begin() starts a generation with a greater number. A
/// generation opens or breaks once and stays so, whatever comes later: each of its waiters gets
/// that answer, however late it asks, as long as the reaper has not deleted it
/// (reaper_options::retention). Waiting reads the latch's row, after a few milliseconds
/// at first, and four times a second later; no message can be missed or forged. A latch and a lease
/// of one name have nothing to do with each other. Thread-safe, except for moving. The client must
/// outlive it.
///
/// Errors: as client says; errc::invalid_options if the name is that of a double_barrier.
class latch {
public:
    /// No round trip.
    /// @throws error errc::invalid_name
    latch(client& locks, const lock_name& name);

    /// Begins a generation that opens after `count` arrivals, 1 to 1 000 000, unless the latest one
    /// is closed. Returns its number; nullopt if one is closed, begun by another call: one round
    /// trip then, else seven to ten, and four more for the first of a name.
    /// @throws error errc::invalid_options
    std::optional<std::int64_t> begin(std::int64_t count, const latch_options& options = {});

    /// Registers a party of the latest generation, or of that one. Six or seven round trips.
    /// @throws error errc::invalid_options if there is none; errc::broken
    [[nodiscard]] latch_party join(std::int64_t generation = 0);
    /// Counts an arrival without a party: a loss before it is not noticed. Does nothing if the
    /// latch is open. Seven to nine round trips. After errc::outcome_unknown it may have counted.
    /// @throws error as join()
    void count_down(std::int64_t generation = 0);

    /// Waits until the generation is open: `generation`, or the latest if 0. If it has not begun,
    /// waits for it to begin. One round trip a poll: after 4 ms at first, every 250 ms later.
    /// @throws error errc::broken if it is broken, or was deleted long after it was over
    void wait(std::int64_t generation = 0);
    /// The same; false if and only if `stop` was requested first.
    template <std::same_as<std::stop_token> Stop>
    [[nodiscard]] bool wait(Stop stop, std::int64_t generation = 0) {
        return wait_until(time_point::max(), stop, generation);
    }
    /// Waits up to `timeout`, or until `stop` is requested; false if it was closed all that time.
    template <typename Rep, typename Period>
    [[nodiscard]] bool wait_for(const std::chrono::duration<Rep, Period>& timeout,
                                const std::stop_token& stop = {}, std::int64_t generation = 0) {
        return wait_until(detail::after(timeout), stop, generation);
    }

    /// Breaks the latest generation if it is closed: for one that will not be finished. Returns
    /// whether it broke one. Seven round trips.
    bool reset();
    /// The latest generation, or that one; empty if there is none. One round trip.
    [[nodiscard]] std::optional<latch_info> inspect(std::int64_t generation = 0);

private:
    using time_point = std::chrono::steady_clock::time_point;
    bool wait_until(time_point until, const std::stop_token& stop, std::int64_t generation);

    client* locks_;
    lock_name name_;
};

/// @}

}  // namespace rowlock
