#include "base/require.hpp"
#include "coordination/lease/engine.hpp"
#include <rowlock/double_barrier.hpp>
#include <rowlock/error.hpp>

#include <string>
#include <utility>

namespace rowlock {
namespace {

using protocol::answer;
using protocol::barrier_kind;
using protocol::barrier_round;
using outcome = protocol::joining::outcome;
using detail::barriers;

error broken_barrier(const char* before) {
    return {errc::broken, std::string{"the barrier is broken: a party was lost before "} + before +
                              ", or the barrier was reset"};
}

error is_a_latch() {
    return {errc::invalid_options, "this name is that of a latch: use another"};
}

barrier_state barrier_state_of(const barrier_round& round) {
    if (round.opened == answer::broken || round.closed == answer::broken) {
        return barrier_state::broken;
    }
    if (round.opened == answer::pending) return barrier_state::filling;
    return round.closed == answer::given ? barrier_state::empty : barrier_state::open;
}

}  // namespace

const char* to_string(barrier_state state) noexcept {
    switch (state) {
        case barrier_state::filling:
            return "filling";
        case barrier_state::open:
            return "open";
        case barrier_state::empty:
            return "empty";
        case barrier_state::broken:
            return "broken";
    }
    return "unknown";
}

void barrier_party::leave() {
    static_cast<void>(leave_until(time_point::max(), {}));
}

bool barrier_party::leave_until(time_point until, const std::stop_token& stop) {
    const auto engine = party_.engine.lock();
    if (!engine) throw detail::client_destroyed();
    auto& meetings = engine->meetings();
    const auto after = meetings.depart({party_.name, party_.generation, party_.id}, until, stop);
    party_.done = after.has_value();
    if (!after && stop.stop_requested()) return false;
    const auto round =
        after && after->round.closed != answer::pending
            ? std::optional{after->round}
            : meetings.wait(party_.name, party_.generation, &barrier_round::closed, until, stop);
    if (!round) return false;
    party_.done = true;
    if (round->closed != answer::given) throw broken_barrier("it had left");
    return true;
}

double_barrier::double_barrier(client& locks, const lock_name& name, std::int64_t parties,
                               const barrier_options& options)
    : locks_{&locks}, name_{name}, parties_{parties}, options_{options} {
    require(parties >= 1 && parties <= 1'000'000, "a double_barrier has 1 to 1000000 parties");
    require(options.on_loss <= party_loss::counts, "a loss either breaks a barrier or counts");
}

barrier_party double_barrier::enter() {
    return *enter_until(time_point::max(), {});
}

std::optional<barrier_party> double_barrier::enter_until(time_point until,
                                                         const std::stop_token& stop) {
    const auto alive = locks_->engine_;  // until the call learns of the client's destruction
    auto& meetings = alive->meetings();
    meetings.context().fork.require_same_process();
    barriers::party mine{name_.str(), 0, meetings.next_id()};
    bool entered = false;
    try {
        const auto done = meetings.enter(mine,
                                         {.kind = barrier_kind::double_barrier,
                                          .size = parties_,
                                          .loss_counts = options_.on_loss == party_loss::counts},
                                         until, stop);
        if (done.what == outcome::other_terms) {
            if (done.seen.generation == 0) throw is_a_latch();
            throw error{errc::invalid_options,
                        "parties of another number, or with other options, have entered and wait: "
                        "give the same to all"};
        }
        entered = done.what == outcome::joined;
        std::optional<barrier_round> round;
        if (entered) {
            mine.generation = done.seen.generation;
            round = done.seen.round;
            if (round->opened == answer::pending) {
                round =
                    meetings.wait(mine.name, mine.generation, &barrier_round::opened, until, stop);
            }
        }
        if (!round) {
            // The time is up, or a stop was requested while a failure was repeated: one transaction
            // says whether the barrier has opened with this party.
            const auto in = meetings.withdraw(mine, until);
            if (!in) {
                if (!entered) meetings.give_up(std::move(mine), barrier_kind::double_barrier, true);
                return std::nullopt;
            }
            mine.generation = in->generation;
            round = in->round;
        }
        if (round->opened == answer::broken) throw broken_barrier("all had entered");
    } catch (const error& failure) {
        const bool is_in =
            failure.kind() != errc::broken && failure.kind() != errc::invalid_options;
        if (is_in) meetings.give_up(std::move(mine), barrier_kind::double_barrier, !entered);
        throw;
    } catch (...) {
        meetings.give_up(std::move(mine), barrier_kind::double_barrier, !entered);
        throw;
    }
    return barrier_party{{locks_->engine_, mine.name, mine.generation, mine.id, false}};
}

bool double_barrier::reset() {
    auto& meetings = locks_->engine_->meetings();
    const auto seen = meetings.look(name_.str(), 0);
    if (!seen) return false;
    if (seen->round.kind != barrier_kind::double_barrier) throw is_a_latch();
    return seen->round.opened == answer::pending && meetings.reset(name_.str(), seen->generation);
}

std::optional<barrier_info> double_barrier::inspect(std::int64_t generation) {
    const auto seen = locks_->engine_->meetings().look(name_.str(), generation);
    if (!seen) return std::nullopt;
    if (seen->round.kind != barrier_kind::double_barrier) {
        throw is_a_latch();
    }
    return barrier_info{.generation = seen->generation,
                        .state = barrier_state_of(seen->round),
                        .parties = seen->round.size,
                        .entered = seen->round.arrived,
                        .left = seen->round.departed};
}

}  // namespace rowlock
