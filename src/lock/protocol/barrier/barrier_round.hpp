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
    withdrawn = 3,  ///< had entered or registered, and left before the round had given its answer
};

/// What a party does, or what becomes of it or its round. Each counts once, however often it is
/// repeated.
enum class barrier_event : unsigned char {
    arrive,
    depart,
    withdraw,
    lose,     ///< its session ended
    abandon,  ///< its object was destroyed: of a latch it is lost; else it withdraws, or departs
    reset,    ///< of the round
    none,
};

/// What a call does that wants a round, or a place in one.
enum class admittance : unsigned char {
    joins,
    begins,   ///< the next one
    none,     ///< the round takes no parties, or is under way and was to be begun
    refused,  ///< the round has other terms
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

    bool operator==(const barrier_round&) const = default;

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
    /// Of a double barrier: all that had entered have left again.
    [[nodiscard]] bool is_empty() const noexcept {
        return kind == barrier_kind::double_barrier && opened == answer::pending && arrived == 0;
    }
    /// What a call does that finds this round as the latest, or as the one that it named.
    [[nodiscard]] admittance admits(const barrier_round& terms, bool as_party,
                                    bool named) const noexcept {
        if (opened != answer::pending) return named ? admittance::none : admittance::begins;
        if (!as_party) return admittance::none;
        const bool fits = size == terms.size && loss_counts == terms.loss_counts;
        return named || fits ? admittance::joins : admittance::refused;
    }

    /// Applies an event to the round and to a party at that stage. Returns the party's new stage.
    [[nodiscard]] party_stage apply(barrier_event what, party_stage at) noexcept {
        const bool is_latch = kind == barrier_kind::latch;
        if (at >= (is_latch ? party_stage::arrived : party_stage::departed)) return at;
        switch (what) {
            case barrier_event::arrive:
                return is_latch ? arrive() : at;
            case barrier_event::depart:
                return is_latch ? at : depart();
            case barrier_event::withdraw:
                return is_latch ? party_stage::withdrawn : withdraw(at);
            case barrier_event::lose:
                return is_latch ? lose_registered() : lose_entered(at);
            case barrier_event::abandon:
                return is_latch ? lose_registered() : leave(at);
            case barrier_event::reset:
            case barrier_event::none:
                break;
        }
        return at;
    }
    party_stage arrive() noexcept {
        ++arrived;
        if (opened == answer::pending && arrived >= size) opened = answer::given;
        return party_stage::arrived;
    }
    void reset() noexcept {
        if (opened == answer::pending) opened = answer::broken;
    }

private:
    party_stage depart() noexcept {
        ++departed;
        if (closed == answer::pending && departed >= size) closed = answer::given;
        return party_stage::departed;
    }
    /// Once the barrier has opened, or is broken, it is too late: the party has its answer.
    party_stage withdraw(party_stage at) noexcept {
        if (opened != answer::pending) return at;
        --arrived;
        return party_stage::withdrawn;
    }
    party_stage leave(party_stage at) noexcept {
        if (is_over()) return at;
        const auto left = withdraw(at);
        return left == at ? depart() : left;
    }
    party_stage lose_registered() noexcept {
        if (loss_counts) return arrive();
        reset();
        return party_stage::arrived;
    }
    party_stage lose_entered(party_stage at) noexcept {
        if (opened == answer::pending) {
            if (!loss_counts) reset();
            return at;  // it has entered; that it does not depart shows later
        }
        if (loss_counts) return depart();
        if (opened == answer::given && closed == answer::pending) closed = answer::broken;
        return party_stage::departed;
    }
};

}  // namespace rowlock::protocol
