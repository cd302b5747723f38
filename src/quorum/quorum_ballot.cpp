#include "quorum/quorum_ballot.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <utility>

namespace rowlock::protocol {
namespace {

using namespace std::chrono_literals;

constexpr nanoseconds never = nanoseconds::max();
constexpr nanoseconds long_past = nanoseconds::min();

nanoseconds part_of(nanoseconds time, double fraction) {
    return nanoseconds{static_cast<nanoseconds::rep>(static_cast<double>(time.count()) * fraction)};
}

}  // namespace

quorum_ballot::quorum_ballot(const quorum_terms& terms, quorum_view& view)
    : terms_{terms},
      view_{view},
      links_(static_cast<std::size_t>(terms.stores)),
      look_at_minority_{never},
      end_of_minority_{never},
      rest_until_{never},
      keep_until_{never},
      alarm_{never} {}

void quorum_ballot::begin() {
    release_all();
    state_ = state::waiting;
    token_ = 0;
    look_at_minority_ = end_of_minority_ = rest_until_ = keep_until_ = never;
    for (int store = 0; store < terms_.stores; ++store) {
        links_[index(store)] = {};
        ask(store);
    }
    set_alarm();
}

void quorum_ballot::granted(int store, std::int64_t ask, nanoseconds now) {
    if (!is_of(store, ask, stage::asked) || !check(now)) return;
    links_[index(store)].at = stage::granted;
    if (state_ == state::lost) return release(store);
    if (state_ == state::held) {
        // Its token is known, perhaps by our own seal: a claim would go beyond it.
        links_[index(store)].at = stage::writing;
        actions_.push_back({quorum_step::write, store, ask, token_});
        return set_alarm();
    }
    actions_.push_back({quorum_step::claim, store, ask, 0});
    note_minority(now);
    set_alarm();
}

void quorum_ballot::refused(int store, std::int64_t ask, nanoseconds now) {
    if (!is_of(store, ask, stage::asked) || !check(now)) return;
    release(store);
    links_[index(store)].again = now + terms_.answers_within;
    set_alarm();
}

void quorum_ballot::written(int store, std::int64_t ask, std::int64_t token, nanoseconds now) {
    auto& one = links_[index(store)];
    if (one.ask != ask || (one.at != stage::granted && one.at != stage::writing)) return;
    if (!check(now)) return;
    one.token = token;
    one.at = stage::claimed;
    decide(now);
    set_alarm();
}

void quorum_ballot::ended(int store, std::int64_t ask, nanoseconds now) {
    auto& one = links_[index(store)];
    if (one.ask != ask || one.at == stage::none) return;
    left_.push_back({quorum_step::release, store, ask, 0});
    // A store that grants and takes no token is not asked as fast as it answers.
    const bool was_counted = one.at == stage::counted;
    if (state_ == state::held && is_unanswered(one)) seal(store);
    one.again = was_counted || one.at == stage::asked ? now : now + terms_.answers_within;
    one.at = stage::none;
    if (!check(now) || state_ == state::lost) return;
    release_left();
    if (token_ == 0 && granted_stores() == 0) look_at_minority_ = end_of_minority_ = never;
    // The token was drawn from that store as well: with fewer than a majority the ballot is over.
    if (state_ == state::waiting && token_ != 0 && granted_stores() < terms_.majority) rest(now);
    set_alarm();
}

void quorum_ballot::tick(nanoseconds now) {
    if (!check(now)) return;
    if (state_ == state::lost && now >= keep_until_) {
        release_all();
        return set_alarm();
    }
    if (state_ == state::resting) {
        if (now >= rest_until_) begin();
        return;
    }
    if (state_ != state::waiting && state_ != state::held) return;
    for (int store = 0; store < terms_.stores; ++store) {
        if (links_[index(store)].at == stage::none && now >= links_[index(store)].again) ask(store);
    }
    if (is_minority()) {
        if (now >= end_of_minority_) {
            rest(now);
        } else if (now >= look_at_minority_) {
            int first = 0;
            while (first < terms_.stores && !view_.answers(first, now)) ++first;
            if (first < terms_.stores && links_[index(first)].at >= stage::granted) {
                look_at_minority_ = now + patience();
            } else {
                rest(now);
            }
        }
    }
    set_alarm();
}

void quorum_ballot::give_up() {
    if (state_ == state::held) {
        seal_unanswered();
        release_those_behind();
    }
    release_all();
    if (state_ != state::lost) state_ = state::idle;
    set_alarm();
}

bool quorum_ballot::held(nanoseconds now) const {
    return state_ == state::held && now < trusted_until();
}

nanoseconds quorum_ballot::trusted_until() const {
    std::array<nanoseconds, most_stores> windows{};
    std::size_t count = 0;
    for (int store = 0; store < terms_.stores; ++store) {
        if (counts(store)) {
            windows[count++] = view_.trusted_until(store, links_[index(store)].ask);
        }
    }
    if (count < index(terms_.majority)) return long_past;
    std::sort(windows.begin(), windows.begin() + static_cast<std::ptrdiff_t>(count),
              std::greater<>{});
    return windows[terms_.with.shortest_of_majority ? index(terms_.majority - 1) : 0];
}

int quorum_ballot::counted() const noexcept {
    return static_cast<int>(
        std::ranges::count(links_, stage::counted, [](const link& one) { return one.at; }));
}

std::vector<quorum_action> quorum_ballot::take_actions() {
    return std::exchange(actions_, {});
}

bool quorum_ballot::is_of(int store, std::int64_t ask, stage from) const {
    const auto& one = links_[index(store)];
    return one.ask == ask && one.at == from;
}

int quorum_ballot::granted_stores() const {
    return static_cast<int>(
        std::ranges::count_if(links_, [](const link& one) { return one.at >= stage::granted; }));
}

nanoseconds quorum_ballot::patience() const {
    return std::max(terms_.minority_for, 4 * view_.round_trip());
}

/// Whether a majority is still to be granted. One whose claims are under way is not given back.
bool quorum_ballot::is_minority() const {
    return state_ == state::waiting && token_ == 0 && granted_stores() < terms_.majority;
}

/// Before anything can prolong a belief: is it over already? Returns false then.
bool quorum_ballot::check(nanoseconds now) {
    if (state_ != state::held || now < trusted_until() || !terms_.with.latches) return true;
    lose(now);
    return false;
}

void quorum_ballot::ask(int store) {
    auto& one = links_[index(store)];
    one = {.at = stage::asked, .ask = ++asks_};
    actions_.push_back({quorum_step::wait_in_line, store, one.ask, 0});
}

void quorum_ballot::release(int store, std::int64_t token) {
    auto& one = links_[index(store)];
    if (one.at == stage::none) return;
    actions_.push_back({quorum_step::release, store, one.ask, token});
    one.at = stage::none;
}

/// A claim that was no part of the belief may have left a store ahead of the token: there this
/// hold's guard is refused. If that store always answers after the belief, so would be the guards
/// of all later holds: the others catch up with it before they are released.
void quorum_ballot::release_those_behind() {
    std::int64_t greatest = token_;
    for (const auto& one : links_) {
        if (one.at == stage::counted) greatest = std::max(greatest, one.token);
    }
    for (int store = 0; store < terms_.stores; ++store) {
        if (counts(store) && links_[index(store)].token < greatest) release(store, greatest);
    }
}

void quorum_ballot::seal(int store) {
    if (terms_.with.seals) actions_.push_back({quorum_step::seal, store, 0, token_});
}

/// The hold ends: what a claim or write that is under way brings is not waited for.
void quorum_ballot::seal_unanswered() {
    for (int store = 0; store < terms_.stores; ++store) {
        if (is_unanswered(links_[index(store)])) seal(store);
    }
}

void quorum_ballot::release_left() {
    for (const auto& each : left_) actions_.push_back(each);
    left_.clear();
}

void quorum_ballot::release_all() {
    release_left();
    for (int store = 0; store < terms_.stores; ++store) release(store);
    keep_until_ = never;
}

/// A claim or write was confirmed.
void quorum_ballot::decide(nanoseconds now) {
    if (state_ == state::waiting && !fix_token()) return;
    for (int store = 0; store < terms_.stores; ++store) {
        if (links_[index(store)].at == stage::claimed) count_or_write(store);
    }
    if (state_ == state::waiting && counted() >= terms_.majority) believe(now);
}

/// The token is the greatest of the claims in all stores that are counted when the belief begins. A
/// claim that comes after others had made a majority may show that another client has believed in
/// between: then the token rises, and is written anew. Returns false if it is too early.
bool quorum_ballot::fix_token() {
    const auto claimed =
        std::ranges::count_if(links_, [](const link& one) { return one.at >= stage::claimed; });
    if (token_ == 0 && claimed < terms_.majority) return false;
    for (const auto& one : links_) {
        if (one.at >= stage::claimed) token_ = std::max(token_, one.token);
    }
    for (auto& one : links_) {
        if (one.at == stage::counted && one.token < token_) one.at = stage::claimed;
    }
    return true;
}

void quorum_ballot::count_or_write(int store) {
    auto& one = links_[index(store)];
    if (one.token >= token_ || !terms_.with.writes_back) {
        one.at = stage::counted;
    } else {
        one.at = stage::writing;
        actions_.push_back({quorum_step::write, store, one.ask, token_});
    }
}

void quorum_ballot::believe(nanoseconds now) {
    if (now >= trusted_until()) return rest(now);
    state_ = state::held;
    look_at_minority_ = end_of_minority_ = never;
    for (int store = 0; store < terms_.stores; ++store) {
        // A claim or write that is under way brings the token, or is followed by a seal: if it
        // fails, and at the end of the hold. A claim behind a seal would go beyond it, and our own
        // guard would be refused.
        if (links_[index(store)].at < stage::granted) seal(store);
    }
}

/// The leases stay for a while, that of the event as well: no other client has a majority before
/// the holder has stopped, or had the time to.
void quorum_ballot::lose(nanoseconds now) {
    state_ = state::lost;
    keep_until_ = now + terms_.margin;
    seal_unanswered();
    for (int store = 0; store < terms_.stores; ++store) {
        if (!counts(store)) release(store);
    }
    set_alarm();
}

/// Gives everything back, so that another ballot can have a majority, and begins again later.
void quorum_ballot::rest(nanoseconds now) {
    release_all();
    state_ = state::resting;
    ++rests_;
    const nanoseconds most = std::min<nanoseconds>(std::max(terms_.longest_rest, patience()),
                                                   2ms * (1 << std::min(rests_, 12)));
    rest_until_ = now + part_of(most, view_.random());
    set_alarm();
}

/// From the first grant on: all clients may hold minorities, each waiting for the others.
void quorum_ballot::note_minority(nanoseconds now) {
    if (state_ != state::waiting || look_at_minority_ != never) return;
    look_at_minority_ = now + patience() + part_of(patience(), view_.random());
    end_of_minority_ = now + terms_.ttl + part_of(terms_.ttl / 2, view_.random());
}

void quorum_ballot::set_alarm() {
    alarm_ = never;
    if (state_ == state::resting) alarm_ = rest_until_;
    if (state_ == state::lost) alarm_ = keep_until_;
    if (state_ != state::waiting && state_ != state::held) return;
    for (const auto& one : links_) {
        if (one.at == stage::none) alarm_ = std::min(alarm_, one.again);
    }
    if (state_ == state::held && terms_.with.latches) alarm_ = std::min(alarm_, trusted_until());
    if (is_minority()) {
        alarm_ = std::min({alarm_, look_at_minority_, end_of_minority_});
    }
}

}  // namespace rowlock::protocol
