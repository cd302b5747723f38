#pragma once

#include <cstdint>

/// The rules of latches and double barriers, without a database: what each event makes of a round.
namespace rowlock::protocol {

/// The numbers are those of the columns.
enum class barrier_kind : std::int64_t { latch = 0, double_barrier = 1 };
enum class answer : std::int64_t { pending = 0, given = 1, broken = 2 };
enum class party_stage : std::int64_t {
    registered = 0,  ///< of a latch: has not arrived
    arrived = 1,     ///< or entered
    departed = 2,
    withdrawn = 3,  ///< had entered, and left before the barrier opened
};

/// One generation of a name. Both answers are given once, and stay: each that asks, however late,
/// gets the same.
struct barrier_round {
    barrier_kind kind = barrier_kind::latch;
    std::int64_t size = 1;  ///< how many arrivals open it
    bool loss_counts = false;
    std::int64_t arrived = 0;
    std::int64_t departed = 0;
    answer opened = answer::pending;
    answer closed = answer::pending;  ///< of a double barrier: all have departed

    [[nodiscard]] bool is_over() const noexcept {
        return opened == answer::broken || closed != answer::pending ||
               (kind == barrier_kind::latch && opened == answer::given);
    }
    /// Whether a loss would change something now.
    [[nodiscard]] bool suffers_from_losses() const noexcept {
        const bool fills = kind == barrier_kind::double_barrier && opened == answer::pending;
        return !is_over() && !(fills && loss_counts);
    }
    /// Nothing more depends on its parties: their rows may go.
    [[nodiscard]] bool needs_no_parties() const noexcept {
        return is_over() && closed != answer::broken;
    }
    /// The first stage that a party need not be alive for.
    [[nodiscard]] party_stage harmless() const noexcept {
        return kind == barrier_kind::latch ? party_stage::arrived : party_stage::departed;
    }
    [[nodiscard]] bool takes_parties() const noexcept {
        return opened == answer::pending && (kind == barrier_kind::latch || arrived < size);
    }

    void arrive() noexcept {
        ++arrived;
        if (opened == answer::pending && arrived >= size) opened = answer::given;
    }
    /// A party that had entered leaves before the barrier opened. Returns false if it is too late:
    /// the party has its answer.
    [[nodiscard]] bool withdraw() noexcept {
        if (opened != answer::pending) return false;
        --arrived;
        return true;
    }
    void depart() noexcept {
        ++departed;
        if (closed == answer::pending && departed >= size) closed = answer::given;
    }
    /// A party's session ended at that stage. Returns the party's new stage.
    party_stage lose(party_stage at) noexcept {
        if (kind == barrier_kind::latch) {
            if (at != party_stage::registered) return at;
            if (loss_counts) {
                arrive();
            } else if (opened == answer::pending) {
                opened = answer::broken;
            }
            return party_stage::arrived;
        }
        if (at >= party_stage::departed) return at;
        if (opened == answer::pending) {
            if (!loss_counts) opened = answer::broken;
            return at;  // it has entered; that it does not depart shows later
        }
        if (loss_counts) {
            depart();
        } else if (opened == answer::given && closed == answer::pending) {
            closed = answer::broken;
        }
        return party_stage::departed;
    }
    void reset() noexcept {
        if (opened == answer::pending) opened = answer::broken;
    }
};

}  // namespace rowlock::protocol
