#include "quorum/quorum_hold.hpp"

#include "base/jitter.hpp"
#include "base/require.hpp"
#include "lock/client/validation.hpp"
#include "lock/session/grant.hpp"
#include <rowlock/error.hpp>

#include <algorithm>
#include <exception>
#include <random>
#include <utility>

namespace rowlock::detail {

using namespace std::chrono_literals;
using protocol::quorum_action;
using protocol::quorum_ballot;
using protocol::quorum_step;
using ballot_state = protocol::quorum_ballot::state;

namespace {

protocol::quorum_terms terms_of(std::size_t members, const client_options& options) {
    protocol::quorum_terms terms;
    terms.stores = static_cast<int>(members);
    terms.majority = terms.stores / 2 + 1;
    terms.ttl = options.ttl;
    terms.margin = options.margin;
    return terms;
}

}  // namespace

quorum_parts::quorum_parts(std::vector<sql::connection_source> members,
                           const client_options& options)
    : clock_{options.time}, terms_{terms_of(members.size(), options)}, members_{members.size()} {
    stores_.reserve(members.size());
    for (std::size_t i = 0; i < members.size(); ++i) {
        stores_.push_back(
            std::make_unique<quorum_store>(std::move(members[i]), options, members_, i));
    }
    alarms_ = std::make_unique<base::worker>(clock_, [this] { return ring(); });
}

void quorum_parts::add(const std::shared_ptr<quorum_hold>& hold) {
    const std::lock_guard lock{mutex_};
    if (closed_) throw client_destroyed();
    std::erase_if(holds_, [](const auto& each) { return each.expired(); });
    holds_.push_back(hold);
}

std::vector<std::shared_ptr<quorum_hold>> quorum_parts::holds() {
    const std::lock_guard lock{mutex_};
    std::vector<std::shared_ptr<quorum_hold>> all;
    for (const auto& each : holds_) {
        if (auto alive = each.lock()) all.push_back(std::move(alive));
    }
    return all;
}

nanoseconds quorum_parts::ring() noexcept {
    try {
        nanoseconds next = base::alarm::never;
        for (const auto& each : holds()) {
            if (each->alarm() <= now()) each->tick();
            next = std::min(next, each->alarm());
        }
        return next;
    } catch (...) {
        return now() + 100ms;  // no memory
    }
}

void quorum_parts::epoch_rose() {
    for (std::size_t i = 0; i < stores_.size(); ++i) {
        const auto server = stores_[i]->server();
        if (server.empty() || members_.includes(i, server)) continue;
        for (const auto& each : holds()) each->drop(i);
    }
}

std::optional<error> quorum_parts::hopeless(nanoseconds since) const {
    std::optional<error> one;
    std::size_t which = 0;
    int failed = 0;
    for (std::size_t i = 0; i < stores_.size(); ++i) {
        auto why = stores_[i]->failure_since(since);
        if (!why) continue;
        ++failed;
        // One that tells what to do is worth more than one that is out of reach.
        if (one && one->kind() != errc::database_unreachable) continue;
        one = std::move(why);
        which = i;
    }
    if (failed <= terms_.stores - terms_.majority) return std::nullopt;
    return error{one->kind(),
                 "no majority of the quorum can be had: " + std::to_string(failed) + " of " +
                     std::to_string(terms_.stores) + " members cannot vote; " + member_at(which) +
                     ": " + one->what(),
                 {one->sqlstate(), one->native_code(), one->server_message()}};
}

void quorum_parts::close() noexcept {
    {
        const std::lock_guard lock{mutex_};
        closed_ = true;
    }
    try {
        const auto all = holds();
        for (const auto& each : all) each->let_go(true);
        for (const auto& each : all) each->release();
    } catch (...) {
        // No memory: the clients release what they hold.
    }
    std::unique_ptr<base::worker> alarms;
    {
        const std::lock_guard lock{mutex_};
        alarms.swap(alarms_);
    }
    alarms.reset();
    waits_.close();
    tasks_.close();
    for (const auto& each : stores_) each->close();
}

void quorum_parts::poke() noexcept {
    const std::lock_guard lock{mutex_};
    if (alarms_) alarms_->poke();
}

void quorum_parts::abandon(std::shared_ptr<quorum_parts> inherited) noexcept {
    // Its threads are the parent's: neither joined nor freed here.
    static_cast<void>(new (std::nothrow) std::shared_ptr<quorum_parts>{std::move(inherited)});
}

quorum_hold::quorum_hold(std::shared_ptr<quorum_parts> parts, lock_name name, std::string note)
    : parts_{std::move(parts)},
      name_{std::move(name)},
      note_{std::move(note)},
      ballot_{parts_->terms(), *this},
      slots_(parts_->size()) {}

quorum_hold::outcome quorum_hold::acquire(std::chrono::steady_clock::time_point until,
                                          const std::stop_token& stop) {
    const auto began = parts_->now();
    decide([](quorum_ballot& ballot, nanoseconds) { ballot.begin(); });
    const auto is_over = [&] {
        return ballot_.now() != ballot_state::waiting && ballot_.now() != ballot_state::resting;
    };
    for (;;) {
        bool over = false;
        {
            std::unique_lock lock{mutex_};
            const auto soon = std::min(until, std::chrono::steady_clock::now() + 200ms);
            changed_.wait_until(lock, stop, soon, is_over);
            over = is_over();
        }
        if (parts_->closed()) {
            let_go();
            throw client_destroyed();
        }
        if (over && held()) return outcome::granted;
        if (over) {
            release();
            return outcome::lost;
        }
        if (stop.stop_requested() || std::chrono::steady_clock::now() >= until) {
            let_go();
            return outcome::given_up;
        }
        if (const auto why = parts_->hopeless(began)) {
            let_go();
            throw error{*why};
        }
    }
}

bool quorum_hold::held() noexcept {
    if (parts_->fork.in_child()) return false;
    bool over = false;
    {
        const std::lock_guard lock{mutex_};
        if (ballot_.now() != ballot_state::held) return false;
        over = !ballot_.held(parts_->now());
    }
    if (over) tick();  // latches it
    return !over;
}

nanoseconds quorum_hold::remaining() noexcept {
    if (!held()) return 0ns;
    const std::lock_guard lock{mutex_};
    // The majority may have gone since held(): then this is long past, and nothing may be taken
    // off.
    const nanoseconds until = ballot_.trusted_until();
    const nanoseconds now = parts_->now();
    return until > now ? until - now : 0ns;
}

int quorum_hold::counted() noexcept {
    if (parts_->fork.in_child()) return 0;
    const std::lock_guard lock{mutex_};
    return ballot_.counted();
}

void quorum_hold::release() noexcept {
    if (parts_->fork.in_child()) return;
    let_go();
    std::unique_lock lock{mutex_};
    changed_.wait_for(lock, longest_release, [this] { return releasing_ == 0; });
}

void quorum_hold::let_go(bool lost) noexcept {
    if (parts_->fork.in_child()) return;
    bool was_held = false;
    decide([&](quorum_ballot& ballot, nanoseconds) {
        was_held = ballot.now() == ballot_state::held;
        ballot.give_up();
    });
    if (lost && was_held) parts_->deliver(lost_);
}

std::shared_ptr<lease> quorum_hold::counted_lease(std::size_t member) {
    parts_->fork.require_same_process();
    require(member < slots_.size(), "the quorum has no member of that position");
    if (!held()) throw error{errc::lock_lost, "the quorum lock is not held any more"};
    const std::lock_guard lock{mutex_};
    if (!ballot_.counts(static_cast<int>(member)) || !slots_[member].held) {
        throw error{errc::lock_lost,
                    "this member does not count for the hold: its lease is another client's, or "
                    "the member does not answer"};
    }
    return slots_[member].held;
}

void quorum_hold::fence_token(sql::connection& db, std::size_t member,
                              const fence_options& options) {
    parts_->store(member).fence_token(db, name(), token_, options);
}

void quorum_hold::tick() noexcept {
    decide([](quorum_ballot& ballot, nanoseconds now) { ballot.tick(now); });
}

void quorum_hold::drop(std::size_t member) noexcept {
    std::int64_t ask = 0;
    {
        const std::lock_guard lock{mutex_};
        ask = slots_[member].ask;
    }
    if (ask != 0) end(member, ask);
}

/// Under the mutex of this hold: called by the ballot.
nanoseconds quorum_hold::trusted_until(int store, std::int64_t ask) const {
    const auto& one = slots_[static_cast<std::size_t>(store)];
    if (one.ask != ask || !one.held) return nanoseconds::min();
    // From the moment on in which a later epoch is known here, and before any claim under it.
    if (!parts_->store(static_cast<std::size_t>(store)).is_member(one.server)) {
        return nanoseconds::min();
    }
    const nanoseconds now = parts_->now();  // before what is left is read: the sum is never late
    const nanoseconds left = one.held->remaining();
    return one.held->held() ? now + left : nanoseconds::min();
}

bool quorum_hold::answers(int store, nanoseconds) const {
    return parts_->store(static_cast<std::size_t>(store)).answers(parts_->terms().answers_within);
}

nanoseconds quorum_hold::round_trip() const {
    nanoseconds slowest{0};
    for (std::size_t i = 0; i < slots_.size(); ++i) {
        auto& store = parts_->store(i);
        if (store.answers(parts_->terms().answers_within)) {
            slowest = std::max(slowest, store.round_trip());
        }
    }
    return slowest;
}

double quorum_hold::random() {
    return std::uniform_real_distribution<double>{}(base::jitter_generator());
}

/// Lets the ballot decide, and does what it says.
template <typename Act>
void quorum_hold::decide(Act act) noexcept {
    bool lost = false;
    {
        const std::lock_guard lock{mutex_};
        const bool was_held = ballot_.now() == ballot_state::held;
        try {
            act(ballot_, parts_->now());
            for (const auto& each : ballot_.take_actions()) todo_.push_back(each);
            for (; !todo_.empty(); todo_.pop_front()) perform(todo_.front());
        } catch (...) {
            // No memory, or no thread: what is left to do is done by a later call.
        }
        token_ = ballot_.token();
        alarm_ = todo_.empty() ? std::max(ballot_.alarm(), nanoseconds{0}) : parts_->now() + 100ms;
        lost = was_held && ballot_.now() == ballot_state::lost;
    }
    parts_->poke();
    changed_.notify_all();
    if (lost) parts_->deliver(lost_);
}

/// Under the mutex: only posts.
void quorum_hold::perform(const quorum_action& what) {
    const auto member = static_cast<std::size_t>(what.store);
    auto& one = slots_[member];
    const auto self = shared_from_this();
    switch (what.what) {
        case quorum_step::wait_in_line:
            // What was here before was released. An ask that cannot be posted is tried again.
            one.ask = what.ask;
            one.stop = {};
            return parts_->post_wait([self, member, ask = what.ask, stop = one.stop.get_token()] {
                self->ask_member(member, ask, stop);
                self->settle(ask);
            });
        case quorum_step::claim:
        case quorum_step::write:
            return parts_->post([self, what, held = one.held] { self->raise(what, held); });
        case quorum_step::seal:
            return parts_->post([self, member, token = what.token] {
                self->parts_->store(member).seal(self->name(), token);
            });
        case quorum_step::release: {
            if (one.ask != what.ask) return;
            if (!one.held) {
                if (parts_->store(member).may_answer()) {
                    ending_.push_back(what.ask);
                    ++releasing_;
                }
                one.stop.request_stop();
                one.ask = 0;
                return;
            }
            const bool counts = parts_->store(member).may_answer();
            const auto ended = std::make_shared<slot>();
            // Not here: a callback that runs now waits for the mutex, and the release for the
            // member.
            parts_->post([self, ended, counts, member, token = what.token] {
                {
                    const std::lock_guard lock{self->mutex_};  // until `ended` is filled below
                }
                ended->on_lost.reset();
                if (token != 0) {
                    static_cast<void>(self->parts_->store(member).raise(*ended->held, token));
                }
                ended->held.reset();
                if (!counts) return;
                const std::lock_guard lock{self->mutex_};
                --self->releasing_;
                self->changed_.notify_all();
            });
            std::swap(*ended, one);
            if (counts) ++releasing_;
            return;
        }
    }
}

void quorum_hold::ask_member(std::size_t member, std::int64_t ask,
                             const std::stop_token& stop) noexcept {
    auto& store = parts_->store(member);
    try {
        if (store.look_if_new()) parts_->epoch_rose();
        auto got = store.acquire(name_, stop, note_);
        if (got) granted(member, ask, *std::move(got));
        return;
    } catch (const error& why) {
        if (!stop.stop_requested()) store.failed(why);
    } catch (const std::exception& why) {
        store.failed(error{errc::out_of_resources, why.what()});
    }
    decide([&](quorum_ballot& ballot, nanoseconds now) {
        ballot.refused(static_cast<int>(member), ask, now);
    });
}

void quorum_hold::settle(std::int64_t ask) noexcept {
    const std::lock_guard lock{mutex_};
    if (std::erase(ending_, ask) == 0) return;
    --releasing_;
    changed_.notify_all();
}

/// A lease that came for an ask that was ended meanwhile is given back by its destructor.
void quorum_hold::granted(std::size_t member, std::int64_t ask, lease held) {
    auto mine = std::make_shared<lease>(std::move(held));
    // Made first: a callback that runs at once waits for the mutex.
    auto on_lost = std::make_unique<callback>(mine->lost(), [weak = weak_from_this(), member, ask] {
        if (const auto self = weak.lock()) self->end(member, ask);
    });
    decide([&](quorum_ballot& ballot, nanoseconds now) {
        auto& one = slots_[member];
        if (one.ask != ask) return;
        one.server = parts_->store(member).server_of(*mine);
        one.held = std::move(mine);
        one.on_lost = std::move(on_lost);
        ballot.granted(static_cast<int>(member), ask, now);
    });
}

void quorum_hold::raise(const quorum_action& what, const std::shared_ptr<lease>& held) noexcept {
    const auto member = static_cast<std::size_t>(what.store);
    auto& store = parts_->store(member);
    std::optional<std::int64_t> wanted;
    if (what.what == quorum_step::write) wanted = what.token;
    const auto known = held ? store.raise(*held, wanted) : std::nullopt;
    if (!known) {
        end(member, what.ask);
        return look_again(member);
    }
    decide([&](quorum_ballot& ballot, nanoseconds now) {
        ballot.written(what.store, what.ask, *known, now);
    });
}

/// A member that refused a token may know another epoch.
void quorum_hold::look_again(std::size_t member) noexcept {
    try {
        if (parts_->store(member).look()) parts_->epoch_rose();
    } catch (const error& why) {
        parts_->store(member).failed(why);
    } catch (const std::exception&) {
        // No memory: the next ask looks.
    }
}

void quorum_hold::end(std::size_t member, std::int64_t ask) noexcept {
    decide([&](quorum_ballot& ballot, nanoseconds now) {
        ballot.ended(static_cast<int>(member), ask, now);
    });
}

}  // namespace rowlock::detail
