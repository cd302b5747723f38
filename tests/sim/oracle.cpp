#include "oracle.hpp"

#include <algorithm>

namespace rowlock::sim {

std::string_view to_string(violation kind) noexcept {
    switch (kind) {
        case violation::none:
            return "none";
        case violation::exclusion:
            return "exclusion";
        case violation::token:
            return "token";
        case violation::revival:
            return "revival";
        case violation::margin:
            return "margin";
        case violation::order:
            return "order";
        case violation::early:
            return "early";
        case violation::partial:
            return "partial";
        case violation::repeated:
            return "repeated";
        case violation::meeting:
            return "meeting";
        case violation::successor:
            return "successor";
        case violation::limit:
            return "limit";
        case violation::deaf:
            return "deaf";
        case violation::taken_over:
            return "taken-over";
        case violation::outdated:
            return "outdated";
        case violation::fence:
            return "fence";
        case violation::wait:
            return "wait";
        case violation::deadlock:
            return "deadlock";
        case violation::leak:
            return "leak";
        case violation::error:
            return "error";
    }
    return "?";
}

void oracle::fail(violation kind, std::string text) {
    scheduler_.log("VIOLATION (" + std::string{to_string(kind)} + ") " + text);
    if (found_ != violation::none) return;
    found_ = kind;
    text_ = std::move(text);
}

bool oracle::ask(const belief& of) {
    return scheduler_.as(*of.where, of.held);
}

oracle::handle oracle::enter(belief made) {
    const bool counts = ask(made) && !is_forced(made);
    i64 weight = counts ? made.weight : 0;
    for (const auto& other : beliefs_) {
        if (other.name != made.name) continue;
        const bool is_held = ask(other);
        if (is_held && other.lost_at != forever) fail(violation::revival, other.name);
        if (is_forced(other)) continue;
        if (is_held) weight += other.weight;
        const bool exclude = other.weight + made.weight > made.capacity;
        if (other.lost_at == forever || !exclude || !other.steady || !made.steady) continue;
        // Its holder has not said that it stopped. A loss is noticed a little late.
        const i64 time = made.since - other.lost_at;
        if (time < other.margin * 8 / 10) {
            fail(violation::margin, made.name + ": granted " + std::to_string(time / us) +
                                        " us after lost() of the holder before, whose margin is " +
                                        std::to_string(other.margin / us) + " us");
        }
    }
    if (counts && weight > made.capacity) {
        fail(violation::exclusion,
             made.name + ": " + std::to_string(weight) + " of " + std::to_string(made.capacity) +
                 " are believed to be held, with n" + std::to_string(made.where->id) + "'s token " +
                 std::to_string(made.token));
    }
    if (counts && made.rises) {
        i64& last = tokens_[made.name];
        if (made.token <= last) {
            fail(violation::token, made.name + ": token " + std::to_string(made.token) + " after " +
                                       std::to_string(last));
        }
        last = std::max(last, made.token);
    }
    const std::string name = made.name;
    beliefs_.push_back(std::move(made));
    if (const auto limit = limits_.find(name); limit != limits_.end()) {
        scheduler_.after(limit->second.length + enforced_within_,
                         [this, name] { look_at_limit(name); });
    }
    return std::prev(beliefs_.end());
}

void oracle::changes_limit(const std::string& name) {
    limits_.erase(name);
    auto& calls = limit_calls_[name];
    if (++calls.under_way > 1) calls.overlap = true;
}

void oracle::limited(const std::string& name, i64 longest) {
    auto& calls = limit_calls_[name];
    const bool overlapped = calls.overlap;
    if (--calls.under_way == 0) calls.overlap = false;
    if (overlapped || longest == 0) return;
    limits_[name] = {.length = longest, .known_at = scheduler_.now()};
    scheduler_.after(longest + enforced_within_, [this, name] { look_at_limit(name); });
}

void oracle::look_at_limit(const std::string& name) {
    const auto limit = limits_.find(name);
    if (enforced_within_ == 0 || limit == limits_.end()) return;
    const auto& [length, known_at] = limit->second;
    for (const auto& one : beliefs_) {
        const i64 began = std::max(one.since, known_at);
        if (one.name != name || scheduler_.now() < began + length + enforced_within_) continue;
        if (!one.steady || !ask(one)) continue;
        fail(violation::limit, name + ": n" + std::to_string(one.where->id) + " holds token " +
                                   std::to_string(one.token) + " since " +
                                   std::to_string((scheduler_.now() - one.since) / us) +
                                   " us; the limit is " + std::to_string(length / us) + " us");
    }
}

void oracle::affirms(handle which) {
    if (which->lost_at != forever) fail(violation::revival, which->name);
    for (auto other = beliefs_.begin(); other != beliefs_.end(); ++other) {
        if (other == which || other->name != which->name || !ask(*other)) continue;
        if (other->weight + which->weight <= which->capacity) continue;
        fail(violation::exclusion, which->name + ": n" + std::to_string(which->where->id) +
                                       "'s token " + std::to_string(which->token) +
                                       " is held, and n" + std::to_string(other->where->id) +
                                       "'s token " + std::to_string(other->token));
    }
}

bool oracle::is_forced(const belief& of) const {
    return std::ranges::any_of(forced_, [&](const forced& one) { return one.is(of); });
}

void oracle::require_known(const forced& which, const belief& of) {
    if (!which.is(of) || !ask(of)) return;
    fail(violation::deaf, of.name + ": n" + std::to_string(of.where->id) +
                              " still believes in token " + std::to_string(of.token));
}

void oracle::took(const forced& which, i64 ttl) {
    taken_.emplace_back(scheduler_.now(), which);
    scheduler_.after(ttl * 11 / 10, [this, which] {
        for (const auto& one : beliefs_) require_known(which, one);
    });
}

void oracle::beats(int node_id, i64 sent) {
    for (const auto& one : beliefs_) {
        // A mutex is judged by lost(), which fires a little later.
        if (one.where->id != node_id || one.session == 0) continue;
        for (const auto& [time, which] : taken_) {
            if (time < sent) require_known(which, one);
        }
    }
}

void oracle::chosen(i64 term, i64 session) {
    chosen_[term] = session;
    if (const auto found = leaders_.find(term); found != leaders_.end()) leads(term, found->second);
}

void oracle::leads(i64 term, i64 session) {
    leaders_[term] = session;
    const auto found = chosen_.find(term);
    if (found == chosen_.end() || found->second == session) return;
    fail(violation::successor, "term " + std::to_string(term) + " is of session " +
                                   std::to_string(session) + " instead of " +
                                   std::to_string(found->second));
}

void oracle::killed(const node& process) {
    std::erase_if(beliefs_, [&](const belief& one) { return one.where == &process; });
}

void oracle::stopped(const node& process) {
    for (auto& one : beliefs_) {
        if (one.where == &process) one.steady = false;
    }
}

oracle::call_id oracle::call_begins(const node& process, const std::string& name) {
    calls_of(process, name).under_way.insert(++last_call_);
    return last_call_;
}

void oracle::call_ends(const node& process, const std::string& name, call_id which, bool given) {
    auto& of = calls_of(process, name);
    of.under_way.erase(which);
    if (given) {
        ++of.given;
        ++of.changes;
    }
    for (auto one = of.suspects.begin(); one != of.suspects.end();) {
        const bool suspected = one->erase(which) > 0;
        if (suspected && !given && one->empty()) {
            fail(violation::early, name + ": holds() of n" + std::to_string(process.id) +
                                       " was true, and no call returned the lock");
        }
        one = one->empty() || (suspected && given) ? of.suspects.erase(one) : std::next(one);
    }
}

void oracle::given_back(const node& process, const std::string& name) {
    auto& of = calls_of(process, name);
    --of.given;
    ++of.changes;
}

void oracle::check_holds(const node& process, const std::string& name,
                         const std::function<bool()>& holds) {
    auto& of = calls_of(process, name);
    const auto before = of.changes;
    auto suspects = of.under_way;
    if (!holds() || of.given > 0 || of.changes != before) return;
    // One that has ended meanwhile may be the one.
    for (const call_id one : suspects) {
        if (!of.under_way.contains(one)) return;
    }
    suspects.insert(of.under_way.begin(), of.under_way.end());
    if (suspects.empty()) {
        fail(violation::early, name + ": holds() of n" + std::to_string(process.id) +
                                   " is true, and no call is under way");
        return;
    }
    of.suspects.push_back(std::move(suspects));
}

void oracle::asks(u64 thread, const std::string& name) {
    queue_[thread] = {.name = name, .asked_at = scheduler_.now()};
}

void oracle::enqueued(u64 thread, const std::string& name, i64 grant_id, const entry& made) {
    const auto found = queue_.find(thread);
    if (found == queue_.end() || found->second.name != name) return;
    found->second = {name, made.asked_at, grant_id, made.made_at, made.limited};
}

void oracle::granted(u64 thread, i64 token, i64 grant_id, bool fair) {
    const auto found = queue_.find(thread);
    if (found == queue_.end()) return;
    waiting self = found->second;
    queue_.erase(found);
    if (self.grant_id != grant_id) self.enqueued_at = forever;  // not by that entry
    if (self.limited && clock_set_at_ > self.enqueued_at) self.enqueued_at = forever;
    auto& grants = grants_[self.name];
    for (const auto& other : grants) {
        // It asked when this one stood in the queue, and was served before it.
        if (self.enqueued_at >= other.asked_at || other.token >= token) continue;
        fail(violation::order, self.name + ": token " + std::to_string(token) +
                                   " went to a waiter in the queue since " +
                                   std::to_string(self.enqueued_at / us) + " us, token " +
                                   std::to_string(other.token) + " to a caller that came at " +
                                   std::to_string(other.asked_at / us) + " us");
    }
    if (fair) grants.push_back({.token = token, .asked_at = self.asked_at});
}

}  // namespace rowlock::sim
