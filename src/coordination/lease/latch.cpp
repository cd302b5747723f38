#include "base/require.hpp"
#include "coordination/lease/engine.hpp"
#include <rowlock/error.hpp>
#include <rowlock/latch.hpp>

#include <string>
#include <utility>

namespace rowlock {
namespace {

using protocol::answer;
using protocol::barrier_kind;
using protocol::barrier_round;
using outcome = protocol::joining::outcome;
using detail::barriers;

error broken_latch() {
    return {errc::broken,
            "the latch is broken: a party was lost before it arrived, or the latch was reset"};
}

error no_latch(outcome why) {
    if (why == outcome::other_terms) {
        return {errc::invalid_options, "this name is that of a double_barrier: use another"};
    }
    return {errc::invalid_options, "the latch has no such generation: call begin() first"};
}

latch_state latch_state_of(const barrier_round& round) {
    switch (round.opened) {
        case answer::given:
            return latch_state::open;
        case answer::broken:
            return latch_state::broken;
        case answer::pending:
            break;
    }
    return latch_state::closed;
}

}  // namespace

const char* to_string(latch_state state) noexcept {
    switch (state) {
        case latch_state::closed:
            return "closed";
        case latch_state::open:
            return "open";
        case latch_state::broken:
            return "broken";
    }
    return "unknown";
}

detail::party_handle& detail::party_handle::operator=(party_handle&& other) noexcept {
    // The old party is given up as the temporary goes out of scope.
    party_handle moved{std::move(other)};
    engine.swap(moved.engine);
    name.swap(moved.name);
    std::swap(generation, moved.generation);
    std::swap(id, moved.id);
    std::swap(of_latch, moved.of_latch);
    std::swap(done, moved.done);
    return *this;
}

detail::party_handle::~party_handle() {
    const auto alive = engine.lock();
    if (!alive || done) return;
    alive->meetings().give_up({std::move(name), generation, id},
                              of_latch ? barrier_kind::latch : barrier_kind::double_barrier, false);
}

void latch_party::arrive() {
    const auto engine = party_.engine.lock();
    if (!engine) throw detail::client_destroyed();
    const auto round = engine->meetings().arrive({party_.name, party_.generation, party_.id});
    if (!round) throw error{errc::broken, "this generation is there no more: it was over long ago"};
    party_.done = true;
    if (round->round.opened == answer::broken) throw broken_latch();
}

latch::latch(client& locks, const lock_name& name) : locks_{&locks}, name_{name} {}

std::optional<std::int64_t> latch::begin(std::int64_t count, const latch_options& options) {
    require(count >= 1 && count <= 1'000'000, "a latch counts from 1 to 1000000 arrivals");
    require(options.on_loss <= party_loss::counts, "a loss either breaks a latch or counts");
    const auto done = locks_->engine_->meetings().begin(
        name_.str(), {.kind = barrier_kind::latch,
                      .size = count,
                      .loss_counts = options.on_loss == party_loss::counts});
    if (done.what == outcome::other_terms) throw no_latch(done.what);
    if (done.what != outcome::joined) return std::nullopt;
    return done.seen.generation;
}

/// Fixed before the first attempt: an attempt whose reply was lost is not repeated in a later one.
std::int64_t latch::fixed(std::int64_t generation) {
    auto& meetings = locks_->engine_->meetings();
    if (generation != 0) {
        meetings.context().fork.require_same_process();
        return generation;
    }
    const auto seen = meetings.look(name_.str(), 0);
    if (!seen) throw no_latch(outcome::no_round);
    return seen->generation;
}

latch_party latch::join(std::int64_t generation) {
    auto& meetings = locks_->engine_->meetings();
    const barriers::party mine{name_.str(), fixed(generation), meetings.next_id()};
    protocol::joining done;
    try {
        done = meetings.join(mine, protocol::party_stage::registered);
    } catch (...) {
        meetings.give_up(mine, barrier_kind::latch, true);
        throw;
    }
    if (done.seen.generation == 0) throw no_latch(done.what);
    if (done.seen.round.opened == answer::broken) throw broken_latch();
    latch_party party{{locks_->engine_, mine.name, mine.generation, mine.id, true}};
    // If it is open already the arrival changes nothing.
    party.party_.done = done.what == outcome::no_round;
    return party;
}

void latch::count_down(std::int64_t generation) {
    auto& meetings = locks_->engine_->meetings();
    const auto done = meetings.join({name_.str(), fixed(generation), meetings.next_id()},
                                    protocol::party_stage::arrived);
    if (done.seen.generation == 0) throw no_latch(done.what);
    if (done.seen.round.opened == answer::broken) throw broken_latch();
}

void latch::wait(std::int64_t generation) {
    static_cast<void>(wait_until(time_point::max(), {}, generation));
}

bool latch::wait_until(time_point until, const std::stop_token& stop, std::int64_t generation) {
    const auto alive = locks_->engine_;  // until the call learns of the client's destruction
    const auto round =
        alive->meetings().wait(name_.str(), generation, &barrier_round::opened, until, stop);
    if (!round) return false;
    if (round->kind != barrier_kind::latch) throw no_latch(outcome::other_terms);
    if (round->opened == answer::broken) throw broken_latch();
    return true;
}

bool latch::reset() {
    auto& meetings = locks_->engine_->meetings();
    const auto seen = meetings.look(name_.str(), 0);
    if (!seen) return false;
    if (seen->round.kind != barrier_kind::latch) throw no_latch(outcome::other_terms);
    return seen->round.opened == answer::pending && meetings.reset(name_.str(), seen->generation);
}

std::optional<latch_info> latch::inspect(std::int64_t generation) {
    const auto seen = locks_->engine_->meetings().look(name_.str(), generation);
    if (!seen) return std::nullopt;
    if (seen->round.kind != barrier_kind::latch) throw no_latch(outcome::other_terms);
    return latch_info{.generation = seen->generation,
                      .state = latch_state_of(seen->round),
                      .count = seen->round.size,
                      .arrived = seen->round.arrived,
                      .registered = seen->registered};
}

}  // namespace rowlock
