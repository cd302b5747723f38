#include "stress/recorded.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace stress {
namespace {

bool begins_a_hold(history_kind kind) {
    using enum history_kind;
    return kind == granted || kind == handed_over || kind == taken_over || kind == reclaimed;
}

bool is_over(history_kind kind) {
    return kind == history_kind::session_ended || kind == history_kind::session_expired;
}

std::string of(const record& one) {
    return "record " + std::to_string(one.id) + " (" + rowlock::to_string(one.kind) + " " +
           one.name + (one.token != 0 ? " token " + std::to_string(one.token) : "") + " session " +
           to_string(one.session) + " at " + std::to_string(one.at) +
           (one.ends_at != 0 ? " until " + std::to_string(one.ends_at) : "") + ")";
}

/// The end of a session: its record, and the time from which it was dead by the clock.
struct end_of_session {
    std::int64_t id;
    micros dead;
};
using ends = std::unordered_map<rowlock::session_id, end_of_session>;

ends ends_of_sessions(const records& all) {
    ends found;
    for (const auto& each : all) {
        if (!is_over(each.kind)) continue;
        const bool expired = each.kind == history_kind::session_expired && each.ends_at != 0;
        found.try_emplace(each.session, end_of_session{each.id, expired ? each.ends_at : each.at});
    }
    return found;
}

bool was_dead(const ends& sessions, rowlock::session_id session, const record& then) {
    const auto end = sessions.find(session);
    return end != sessions.end() && (end->second.id < then.id || end->second.dead <= then.at);
}

/// Whether a record shows that the session was ended before. An expiry is not enough.
bool was_ended(const ends& sessions, rowlock::session_id session, const record& then) {
    const auto end = sessions.find(session);
    return end != sessions.end() && end->second.id < then.id;
}

/// xmin:xmax:xip_list, as PostgreSQL prints it.
bool visible(std::int64_t transaction, const std::string& snapshot) {
    const auto first = snapshot.find(':');
    const auto second = snapshot.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) return false;
    if (transaction < std::stoll(snapshot.substr(0, first))) return true;
    if (transaction >= std::stoll(snapshot.substr(first + 1, second - first - 1))) return false;
    const std::string running = ',' + snapshot.substr(second + 1) + ',';
    return running.find(',' + std::to_string(transaction) + ',') == std::string::npos;
}

bool stood_before(const record& earlier, const record& later, order_by how) {
    switch (how) {
        case order_by::snapshot:
            return visible(earlier.transaction, later.snapshot);
        case order_by::ticket:
            return true;
        case order_by::second:
            return later.at - earlier.at > 1'000'000;
    }
    return false;
}

/// The successive holds of one name.
class succession {
public:
    succession(const ends& sessions, violations& found) : sessions_{sessions}, found_{found} {}

    void see(const record& one) {
        using enum history_kind;
        if (one.kind == renewed || one.kind == asked) {
            if (!holder_ || holder_->grant_id != one.grant_id) {
                add("renewed by, or asked of, another than the holder: " + of(one));
            }
            holder_ = &one;
            return;
        }
        if (one.kind == altered) {
            add("changed by other means: " + of(one));
        } else if (one.kind == handed_over || one.kind == taken_over || one.kind == reclaimed) {
            check_predecessor(one);
        } else if (one.kind == granted && holder_) {
            add("granted while held: " + of(one) + " after " + of(*holder_));
        } else if (one.kind == released || one.kind == expired || one.kind == forced) {
            check_end(one);
        }
        if (begins_a_hold(one.kind)) {
            holder_ = &one;
        } else if (one.kind != altered) {
            holder_ = nullptr;
        }
    }

private:
    void check_predecessor(const record& one) {
        if (!holder_ || holder_->session != one.previous_session) {
            return add("after a hold that is not recorded: " + of(one));
        }
        const bool past_deadline = holder_->ends_at != 0 && holder_->ends_at <= one.at;
        const bool ended = was_ended(sessions_, holder_->session, one);
        if (one.kind == history_kind::taken_over && !ended && !past_deadline) {
            add("taken from the living: " + of(one) + " after " + of(*holder_));
        }
        if (one.kind == history_kind::reclaimed && !ended) {
            add("reclaimed from the living: " + of(one) + " after " + of(*holder_));
        }
    }
    void check_end(const record& one) {
        if (!holder_ || holder_->grant_id != one.grant_id) {
            add("the end of a hold that did not begin: " + of(one));
        } else if (one.kind == history_kind::expired && !was_ended(sessions_, one.session, one) &&
                   (holder_->ends_at == 0 || holder_->ends_at > one.at)) {
            add("freed from the living: " + of(one));
        }
    }
    void add(std::string what) { found_.push_back(std::move(what)); }

    const ends& sessions_;
    violations& found_;
    const record* holder_ = nullptr;
};

struct span_of_time {
    micros begin = 0;
    micros end = never;
};

using recorded_spans = std::map<std::pair<rowlock::grant_id, std::int64_t>, span_of_time>;

/// The time of each hold, by grant id and token: until the next change of its name, the end of its
/// session or its own deadline. A renewal begins a span beside those of its grant.
recorded_spans spans(const records& all) {
    const auto sessions = ends_of_sessions(all);
    recorded_spans found;
    std::unordered_map<std::string, std::vector<span_of_time*>> last;
    for (const auto& each : all) {
        if (each.name.empty() || each.ticket != rowlock::ticket_no{}) continue;
        auto& open = last[each.name];
        if (each.kind == history_kind::asked) {
            for (auto* const span : open) {
                if (each.ends_at != 0) span->end = std::min(span->end, each.ends_at);
            }
            continue;
        }
        if (each.kind != history_kind::renewed) {
            for (auto* const span : open) span->end = std::min(span->end, each.at);
            open.clear();
            if (!begins_a_hold(each.kind)) continue;
        }
        auto& span = found[{each.grant_id, each.token}];
        span.begin = each.at;
        if (each.ends_at != 0) span.end = each.ends_at;
        const auto over = sessions.find(each.session);
        if (over != sessions.end()) span.end = std::min(span.end, over->second.dead);
        open.push_back(&span);
    }
    return found;
}

/// Null if there is none.
const span_of_time* span_of(const recorded_spans& held, rowlock::grant_id grant,
                            std::int64_t token) {
    const auto found = held.find({grant, token});
    return found == held.end() ? nullptr : &found->second;
}

/// The log is written 0.6 s later at most (three times wal_writer_delay).
bool told_before_a_crash(const observed_hold& one, const std::vector<fault>& faults) {
    constexpr micros behind = 600'000;
    return std::ranges::any_of(faults, [&](const fault& each) {
        return each.what == "crash" && one.acquired >= each.at - behind &&
               one.acquired <= each.over;
    });
}

/// One queue: its entries and grants.
class queue {
public:
    queue(const ends& sessions, order_by how, violations& found)
        : sessions_{sessions}, how_{how}, found_{found} {}

    void see(const record& one) {
        using enum history_kind;
        if (one.kind == queued) {
            standing_[one.ticket] = &one;
            ticket_of_[one.grant_id] = &one;
        } else if (one.kind == left) {
            standing_.erase(one.ticket);
        } else if (one.kind == granted || one.kind == handed_over || one.kind == taken_over) {
            serve(one);
        }
    }

private:
    void serve(const record& grant) {
        const auto place = ticket_of_.find(grant.grant_id);
        if (place == ticket_of_.end()) return;  // a newcomer: see unfair_calls
        const record& served = *place->second;
        for (const auto& [ticket, other] : standing_) {
            if (ticket >= served.ticket) break;
            if (was_dead(sessions_, other->session, grant)) continue;
            if (other->ends_at != 0 && other->ends_at <= grant.at) continue;
            if (!stood_before(*other, served, how_)) continue;
            found_.push_back(grant.name + ": ticket " + to_string(served.ticket) +
                             " was served before ticket " + to_string(ticket) +
                             ", which stood before it: " + of(grant));
        }
    }

    const ends& sessions_;
    order_by how_;
    violations& found_;
    std::map<rowlock::ticket_no, const record*> standing_;
    std::unordered_map<rowlock::grant_id, const record*> ticket_of_;
};

}  // namespace

violations overlapping_holds(const records& all) {
    violations found;
    const auto sessions = ends_of_sessions(all);
    std::unordered_map<std::string, succession> names;
    std::set<rowlock::session_id> over;
    for (const auto& each : all) {
        if (is_over(each.kind) && !over.insert(each.session).second) {
            found.push_back("a session ended twice: " + of(each));
        }
        if (each.name.empty() && each.kind == history_kind::altered) {
            found.push_back("a dead session was revived: " + of(each));
        }
        if (each.name.empty() || each.ticket != rowlock::ticket_no{}) continue;
        names.try_emplace(each.name, sessions, found).first->second.see(each);
    }
    return found;
}

violations beliefs_beyond_records(const history& all, const records& truth, micros slack,
                                  const std::vector<fault>& faults) {
    violations found;
    const auto held = spans(truth);
    for (const auto& each : all.holds) {
        if (each.db_begin == 0 || all.forced.contains(each.grant_id)) continue;
        if (told_before_a_crash(each, faults)) continue;
        const auto* const span = span_of(held, each.grant_id, each.token);
        const std::string what = each.name + " token " + std::to_string(each.token) +
                                 " of process " + std::to_string(each.process);
        if (span == nullptr) {
            found.push_back("a hold that was never recorded: " + what);
        } else if (each.db_begin < span->begin - slack || each.db_end > span->end + slack) {
            found.push_back("believed beyond what is recorded: " + what + ", from " +
                            std::to_string(each.db_begin - span->begin) +
                            " us after its begin to " + std::to_string(each.db_end - span->end) +
                            " us after its end");
        }
    }
    return found;
}

violations unexplained_losses(const history& all, const records& truth, micros within,
                              const std::vector<fault>& faults) {
    const auto sessions = ends_of_sessions(truth);
    std::unordered_map<rowlock::grant_id, micros> deadlines;  // by grant id
    for (const auto& each : truth) {
        if (begins_a_hold(each.kind)) deadlines[each.grant_id] = each.ends_at;
    }
    const micros offset = wall_time() - boot_time();
    violations found;
    for (const auto& each : all.holds) {
        if (each.result != "the_lock_was_lost" || all.forced.contains(each.grant_id)) continue;
        if (told_before_a_crash(each, faults)) continue;
        const micros then = each.released + offset;
        const auto deadline = deadlines.find(each.grant_id);
        const bool passed = deadline != deadlines.end() && deadline->second != 0 &&
                            deadline->second <= then + within;
        const auto end = sessions.find(each.session);
        const bool over = end != sessions.end() && end->second.dead <= then + within;
        if (passed || over) continue;
        found.push_back("lost for no reason: " + each.name + " token " +
                        std::to_string(each.token) + " of process " + std::to_string(each.process));
    }
    return found;
}

violations falling_tokens(const records& all) {
    violations found;
    std::unordered_map<std::string, std::int64_t> greatest;
    std::unordered_map<std::string, rowlock::grant_id> last;  // grant
    for (const auto& each : all) {
        if (each.name.empty() || each.ticket != rowlock::ticket_no{}) continue;
        auto& top = greatest[each.name];
        // A hold that starts at the token of another is of none of rowlock's kinds.
        const bool another = each.kind == history_kind::altered &&
                             each.grant_id != std::exchange(last[each.name], each.grant_id);
        if (begins_a_hold(each.kind)) last[each.name] = each.grant_id;
        const bool rises =
            begins_a_hold(each.kind) || another || each.kind == history_kind::renewed;
        if (rises && each.token <= top) {
            found.push_back("a token that is not greater than " + std::to_string(top) + ": " +
                            of(each));
        } else if (each.token < top && each.kind != history_kind::deleted) {
            found.push_back("a token that fell from " + std::to_string(top) + ": " + of(each));
        }
        top = std::max(top, each.token);
    }
    return found;
}

violations other_tokens(const history& all, const records& truth,
                        const std::vector<fault>& faults) {
    const auto recorded = spans(truth);
    violations found;
    for (const auto& each : all.holds) {
        if (span_of(recorded, each.grant_id, each.token) != nullptr) continue;
        if (told_before_a_crash(each, faults)) continue;
        found.push_back(each.name + ": a holder was given token " + std::to_string(each.token) +
                        ", which its grant never had");
    }
    return found;
}

violations unfair_grants(const records& all, order_by how) {
    violations found;
    const auto sessions = ends_of_sessions(all);
    std::unordered_map<std::string, queue> names;
    for (const auto& each : all) {
        if (each.name.empty()) continue;
        names.try_emplace(each.name, sessions, how, found).first->second.see(each);
    }
    return found;
}

violations broken_counters(std::vector<guarded_write> writes,
                           const std::unordered_map<std::string, std::int64_t>& finals) {
    violations found;
    std::sort(writes.begin(), writes.end(), [](const auto& a, const auto& b) {
        return std::tie(a.name, a.after, a.token) < std::tie(b.name, b.after, b.token);
    });
    const guarded_write* before = nullptr;
    std::unordered_map<std::string, std::int64_t> greatest;
    for (const auto& each : writes) {
        const std::string what = each.name + ": " + std::to_string(each.before) + " to " +
                                 std::to_string(each.after) + " with token " +
                                 std::to_string(each.token);
        const auto final = finals.find(each.name);
        const auto last = final == finals.end() ? 0 : final->second;
        if (each.acknowledged && each.after > last) {
            found.push_back("lost at the end, which is " + std::to_string(last) + ": " + what);
        }
        const bool same = before && before->name == each.name;
        if (same && each.acknowledged && before->acknowledged && before->after == each.after) {
            found.push_back("written over another: " + what);
        }
        if (same && each.acknowledged && before->acknowledged && each.token < before->token) {
            found.push_back("a stale write was accepted: " + what + ", after token " +
                            std::to_string(before->token));
        }
        if (each.acknowledged) before = &each;
    }
    return found;
}

violations leaks(const baseline& before, const baseline& after) {
    violations found;
    const auto compare = [&](const char* what, std::int64_t then, std::int64_t now) {
        if (now <= then) return;
        found.push_back(std::to_string(now - then) + " more " + what + " than before");
    };
    compare("connections", before.connections, after.connections);
    compare("threads", before.threads, after.threads);
    compare("descriptors", before.descriptors, after.descriptors);
    compare("tickets", before.tickets, after.tickets);
    compare("holds", before.holds, after.holds);
    return found;
}

std::vector<rowlock::grant_id> forced_grants(const records& all) {
    std::vector<rowlock::grant_id> found;
    for (const auto& each : all) {
        if (each.kind == history_kind::forced) found.push_back(each.grant_id);
    }
    return found;
}

std::string summary(const records& all) {
    std::set<rowlock::grant_id> places;
    std::size_t grants = 0;
    std::size_t queued_grants = 0;
    std::size_t sessions = 0;
    for (const auto& each : all) {
        if (each.kind == history_kind::queued) places.insert(each.grant_id);
        if (each.kind == history_kind::session_opened) ++sessions;
        if (!begins_a_hold(each.kind)) continue;
        ++grants;
        if (places.contains(each.grant_id)) ++queued_grants;
    }
    return std::to_string(grants) + " grants, " + std::to_string(queued_grants) +
           " through the queue, " + std::to_string(places.size()) + " places, " +
           std::to_string(sessions) + " sessions, " + std::to_string(all.size()) + " records";
}

}  // namespace stress
