// The faces of latches and double barriers.

#include "base/require.hpp"
#include "lock/recipes/barriers.hpp"
#include <rowlock/double_barrier.hpp>
#include <rowlock/error.hpp>
#include <rowlock/latch.hpp>

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>

namespace rowlock {
namespace {

using detail::barriers;
using detail::round_member;
using protocol::answer;
using protocol::barrier_event;
using protocol::barrier_kind;
using protocol::barrier_round;
using protocol::party_id;
using protocol::party_stage;
using outcome = protocol::joining::outcome;

error broken_latch() {
    return {errc::broken,
            "the latch is broken: a party was lost before it arrived, or the latch was reset"};
}

error broken_barrier(const char* before) {
    return {errc::broken, std::string{"the barrier is broken: a party was lost before "} + before +
                              ", or the barrier was reset"};
}

error no_latch(outcome why) {
    if (why == outcome::other_terms) return detail::of_the_other_kind(barrier_kind::latch);
    return {errc::invalid_options, "the latch has no such generation: call begin() first"};
}

error no_barrier(const protocol::round_state& seen) {
    if (seen.generation == 0) return detail::of_the_other_kind(barrier_kind::double_barrier);
    return {errc::invalid_options,
            "parties of another number, or with other options, have entered and wait: give the "
            "same to all"};
}

barrier_round terms_of(barrier_kind kind, std::int64_t size, party_loss on_loss) {
    require(size >= 1 && size <= 1'000'000, kind == barrier_kind::latch
                                                ? "a latch counts from 1 to 1000000 arrivals"
                                                : "a double_barrier has 1 to 1000000 parties");
    require(on_loss <= party_loss::counts, "a loss either breaks a generation or counts");
    return {.kind = kind, .size = size, .loss_counts = on_loss == party_loss::counts};
}

latch_state latch_state_of(const barrier_round& round) {
    if (round.opened == answer::broken) return latch_state::broken;
    return round.opened == answer::given ? latch_state::open : latch_state::closed;
}

barrier_state barrier_state_of(const barrier_round& round) {
    if (round.opened == answer::broken || round.closed == answer::broken) {
        return barrier_state::broken;
    }
    if (round.opened == answer::pending) return barrier_state::filling;
    return round.closed == answer::given ? barrier_state::empty : barrier_state::open;
}

std::shared_ptr<detail::engine> engine_of(const std::shared_ptr<round_member>& party) {
    auto alive = party ? party->of.lock() : nullptr;
    if (!alive) throw detail::client_destroyed();
    return alive;
}

template <typename State>
const char* word(State state, std::initializer_list<const char*> words) noexcept {
    const auto number = static_cast<std::size_t>(state);
    return number < words.size() ? words.begin()[number] : "unknown";
}

/// The generation is fixed before the first attempt: one whose reply was lost is not repeated in a
/// later one.
protocol::admission to_latch(barriers& rounds, const std::string& name, std::int64_t generation,
                             party_stage stage) {
    if (generation == 0) {
        const auto seen = rounds.look(name, 0, barrier_kind::latch);
        if (!seen) throw no_latch(outcome::no_round);
        generation = seen->generation;
    }
    return {.name = name, .generation = generation, .id = rounds.next_id(), .stage = stage};
}

void require_joined(const protocol::joining& done) {
    if (done.seen.generation == 0) throw no_latch(done.what);
    if (done.seen.round.opened == answer::broken) throw broken_latch();
}

}  // namespace

const char* to_string(latch_state state) noexcept {
    return word(state, {"closed", "open", "broken"});
}

const char* to_string(barrier_state state) noexcept {
    return word(state, {"filling", "open", "empty", "broken"});
}

detail::round_member::~round_member() {
    const auto alive = of.lock();
    if (!alive || done || alive->context().fork.in_child()) return;
    alive->part<detail::barriers>().give_up(std::move(id), end);
}

std::int64_t latch_party::generation() const noexcept {
    return party_ ? party_->id.generation : 0;
}

void latch_party::arrive() {
    const auto after =
        engine_of(party_)->part<detail::barriers>().change(party_->id, barrier_event::arrive);
    if (!after) throw detail::no_such_generation();
    party_->done = true;
    if (after->round.opened == answer::broken) throw broken_latch();
}

latch::latch(client& locks, const lock_name& name) : locks_{&locks}, name_{name} {}

std::optional<std::int64_t> latch::begin(std::int64_t count, const latch_options& options) {
    auto& rounds = locks_->engine_->part<detail::barriers>();
    const auto done = rounds.begin({.name = name_.str(),
                                    .terms = terms_of(barrier_kind::latch, count, options.on_loss),
                                    .id = rounds.next_id()});
    if (done.what == outcome::other_terms) throw no_latch(done.what);
    if (done.what != outcome::joined) return std::nullopt;
    return done.seen.generation;
}

latch_party latch::join(std::int64_t generation) {
    auto& rounds = locks_->engine_->part<detail::barriers>();
    const auto what = to_latch(rounds, name_.str(), generation, party_stage::registered);
    auto party = std::make_shared<round_member>(
        locks_->engine_, party_id{what.name, what.generation, what.id}, barrier_event::withdraw);
    const auto done = rounds.join(what);
    party->end = barrier_event::abandon;
    // If it is open already the arrival changes nothing.
    party->done = done.what != outcome::joined || done.seen.round.opened == answer::broken;
    require_joined(done);
    return latch_party{std::move(party)};
}

void latch::count_down(std::int64_t generation) {
    auto& rounds = locks_->engine_->part<detail::barriers>();
    require_joined(rounds.join(to_latch(rounds, name_.str(), generation, party_stage::arrived)));
}

void latch::wait(std::int64_t generation) {
    static_cast<void>(wait_until(time_point::max(), {}, generation));
}

bool latch::wait_until(time_point until, const std::stop_token& stop, std::int64_t generation) {
    const auto alive = locks_->engine_;  // until the call learns of the client's destruction
    const auto round = alive->part<detail::barriers>().wait(name_.str(), generation,
                                                            &barrier_round::opened, until, stop);
    if (!round) return false;
    if (round->kind != barrier_kind::latch) throw no_latch(outcome::other_terms);
    if (round->opened == answer::broken) throw broken_latch();
    return true;
}

bool latch::reset() {
    return locks_->engine_->part<detail::barriers>().reset(name_.str(), barrier_kind::latch);
}

std::optional<latch_info> latch::inspect(std::int64_t generation) {
    const auto seen = locks_->engine_->part<detail::barriers>().look(name_.str(), generation,
                                                                     barrier_kind::latch);
    if (!seen) return std::nullopt;
    return latch_info{.generation = seen->generation,
                      .state = latch_state_of(seen->round),
                      .count = seen->round.size,
                      .arrived = seen->round.arrived,
                      .registered = seen->registered};
}

std::int64_t barrier_party::generation() const noexcept {
    return party_ ? party_->id.generation : 0;
}

void barrier_party::leave() {
    static_cast<void>(leave_until(time_point::max(), {}));
}

bool barrier_party::leave_until(time_point until, const std::stop_token& stop) {
    const auto alive = engine_of(party_);
    auto& rounds = alive->part<detail::barriers>();
    const auto after = rounds.change(party_->id, barrier_event::depart, until, stop);
    party_->done = after.has_value();
    if (!after && stop.stop_requested()) return false;
    const auto round = after && after->round.closed != answer::pending
                           ? std::optional{after->round}
                           : rounds.wait(party_->id.name, party_->id.generation,
                                         &barrier_round::closed, until, stop);
    if (!round) return false;
    party_->done = true;
    if (round->closed != answer::given) throw broken_barrier("it had left");
    return true;
}

double_barrier::double_barrier(client& locks, const lock_name& name, std::int64_t parties,
                               const barrier_options& options)
    : locks_{&locks}, name_{name}, parties_{parties}, options_{options} {
    static_cast<void>(terms_of(barrier_kind::double_barrier, parties, options.on_loss));
}

barrier_party double_barrier::enter() {
    return *enter_until(time_point::max(), {});
}

std::optional<barrier_party> double_barrier::enter_until(time_point until,
                                                         const std::stop_token& stop) {
    const auto alive = locks_->engine_;  // until the call learns of the client's destruction
    auto& rounds = alive->part<detail::barriers>();
    auto party = std::make_shared<round_member>(
        alive, party_id{.name = name_.str(), .id = rounds.next_id()}, barrier_event::abandon);
    const auto done =
        rounds.join({.name = party->id.name,
                     .terms = terms_of(barrier_kind::double_barrier, parties_, options_.on_loss),
                     .id = party->id.id},
                    until, stop);
    if (done.what == outcome::other_terms) {
        party->done = true;
        throw no_barrier(done.seen);
    }
    party->id.generation = done.seen.generation;
    std::optional<barrier_round> round;
    if (done.what == outcome::joined) {
        round = done.seen.round.opened != answer::pending
                    ? std::optional{done.seen.round}
                    : rounds.wait(name_.str(), party->id.generation, &barrier_round::opened, until,
                                  stop);
    }
    if (!round) {
        // The time is up, or a stop was requested while a failure was repeated: one transaction
        // says whether the barrier has opened with this party.
        const auto in = rounds.change(party->id, barrier_event::withdraw, until);
        party->done = !in;
        if (!in) return std::nullopt;
        party->id.generation = in->generation;
        round = in->round;
    }
    party->done = round->opened == answer::broken;
    if (party->done) throw broken_barrier("all had entered");
    return barrier_party{std::move(party)};
}

bool double_barrier::reset() {
    return locks_->engine_->part<detail::barriers>().reset(name_.str(),
                                                           barrier_kind::double_barrier);
}

std::optional<barrier_info> double_barrier::inspect(std::int64_t generation) {
    const auto seen = locks_->engine_->part<detail::barriers>().look(name_.str(), generation,
                                                                     barrier_kind::double_barrier);
    if (!seen) return std::nullopt;
    return barrier_info{.generation = seen->generation,
                        .state = barrier_state_of(seen->round),
                        .parties = seen->round.size,
                        .entered = seen->round.arrived,
                        .left = seen->round.departed};
}

}  // namespace rowlock
