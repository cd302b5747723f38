#include "stress/history.hpp"

#include "support/read_id.hpp"

#include <time.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace stress {
namespace {

micros reading_of(clockid_t clock) noexcept {
    timespec now{};
    clock_gettime(clock, &now);
    return static_cast<micros>(now.tv_sec) * 1'000'000 + now.tv_nsec / 1000;
}

template <typename Record>
using by_name = std::map<std::string, std::vector<const Record*>>;

by_name<observed_hold> holds_in_token_order(const history& all) {
    by_name<observed_hold> names;
    for (const auto& each : all.holds) names[each.name].push_back(&each);
    for (auto& [name, holds] : names) {
        std::sort(holds.begin(), holds.end(), [](const observed_hold* a, const observed_hold* b) {
            return a->token < b->token;
        });
    }
    return names;
}

std::string of(const observed_hold& one) {
    return one.name + " token " + std::to_string(one.token) + " of process " +
           std::to_string(one.process) + " thread " + std::to_string(one.thread);
}

struct interval {
    micros begin;
    micros end;
};

/// No rule applies to a hold that was ended by force: its holder may trust it for a heartbeat.
bool was_forced(const history& all, const observed_hold& one) {
    return all.forced.contains(one.grant_id);
}

/// It suffices to compare neighbours by start: a hold that overlaps any earlier one overlaps the
/// one that ends last.
violations overlapping(const history& all,
                       const std::function<interval(const observed_hold&)>& part,
                       const std::string& kind) {
    violations found;
    for (auto& [name, holds] : holds_in_token_order(all)) {
        std::vector<std::pair<interval, const observed_hold*>> parts;
        for (const auto* each : holds) {
            if (was_forced(all, *each)) continue;
            const auto when = part(*each);
            if (when.begin != 0) parts.emplace_back(when, each);
        }
        std::sort(parts.begin(), parts.end(),
                  [](const auto& a, const auto& b) { return a.first.begin < b.first.begin; });
        const std::pair<interval, const observed_hold*>* farthest = nullptr;
        for (const auto& each : parts) {
            if (farthest && each.first.begin < farthest->first.end) {
                found.push_back(kind + ": " + of(*farthest->second) + " until " +
                                std::to_string(farthest->first.end) + ", " + of(*each.second) +
                                " from " + std::to_string(each.first.begin));
            }
            if (!farthest || each.first.end > farthest->first.end) farthest = &each;
        }
    }
    return found;
}

/// Events arrive in another thread, later, but in order: the queue positions that a name's events
/// report before its lease_acquired belong to that grant, if only one thread requests the name.
class place_events {
public:
    void waiting(const std::string& name, micros at) { waiting_[name].push_back(at); }
    void acquired(const std::string& name, std::int64_t token) {
        taken_[{name, token}] = std::move(waiting_[name]);
        waiting_[name].clear();
    }
    void match(attempt& call) const {
        const auto found = taken_.find({call.name, call.token});
        if (call.token == 0 || found == taken_.end()) return;
        for (const micros at : found->second) {
            if (at < call.called) continue;
            call.waiting = at;
            return;
        }
    }

private:
    std::map<std::string, std::vector<micros>> waiting_;
    std::map<std::pair<std::string, std::int64_t>, std::vector<micros>> taken_;
};

observed_hold grant_from(std::istringstream& line, pid_t process) {
    observed_hold one;
    one.process = process;
    line >> one.name >> one.thread >> one.token >> support::read_id(one.session) >>
        support::read_id(one.grant_id) >> one.called >> one.acquired >> one.db_begin;
    one.db_end = one.db_begin;
    one.believed_until = one.acquired;
    return one;
}

/// The hold of a name with the greatest token among those acquired by a given time.
auto latest_of(const by_name<observed_hold>& names) {
    std::map<std::string, std::map<micros, const observed_hold*>> tops;
    for (const auto& [name, holds] : names) {
        auto in_time = holds;
        std::ranges::sort(in_time, {}, &observed_hold::acquired);
        auto& top = tops[name];
        for (const auto* one : in_time) {
            if (top.empty() || one->token > top.rbegin()->second->token) top[one->acquired] = one;
        }
    }
    return [tops = std::move(tops)](const std::string& name, micros by) -> const observed_hold* {
        const auto of_name = tops.find(name);
        if (of_name == tops.end()) return nullptr;
        const auto after = of_name->second.upper_bound(by);
        return after == of_name->second.begin() ? nullptr : std::prev(after)->second;
    };
}

micros last_fault_before(const std::vector<fault>& faults, micros from, micros until) {
    micros last = 0;
    for (const auto& each : faults) {
        if (each.at <= until && each.over >= from)
            last = std::max(last, std::min(each.over, until));
    }
    return last;
}

}  // namespace

micros boot_time() noexcept {
    return reading_of(CLOCK_BOOTTIME);
}

micros wall_time() noexcept {
    return reading_of(CLOCK_REALTIME);
}

// Lines, by their first letter:
//   C name thread called queues               a call begins
//   G name thread token session grant called acquired db_begin
//   E thread believed_until db_end release_called                 before the release
//   R thread released result
//   N thread returned result                  the call ended without a grant
//   U name thread token before after acknowledged                a fenced write of a counter
//   W name at, A name token                    the events `waiting` and `lease_acquired`
//   #                                         notes
void history::read(const std::string& path, pid_t process) {
    std::ifstream file{path};
    if (!file) throw std::runtime_error{"no log " + path};
    std::map<int, attempt> open_calls;
    std::map<int, observed_hold> open_holds;
    place_events places;
    const std::size_t first = attempts.size();
    for (std::string text; std::getline(file, text);) {
        std::istringstream line{text};
        char kind = 0;
        int thread = 0;
        line >> kind;
        if (kind == 'C') {
            attempt call;
            call.process = process;
            line >> call.name >> call.thread >> call.called >> call.queues;
            open_calls[call.thread] = call;
        } else if (kind == 'G') {
            const auto one = grant_from(line, process);
            open_holds[one.thread] = one;
            auto call = open_calls.extract(one.thread).mapped();
            call.token = one.token;
            call.returned = one.acquired;
            call.result = "granted";
            attempts.push_back(std::move(call));
        } else if (kind == 'E') {
            line >> thread;
            auto& one = open_holds.at(thread);
            line >> one.believed_until >> one.db_end >> one.release_called;
        } else if (kind == 'R') {
            line >> thread;
            auto one = open_holds.extract(thread).mapped();
            line >> one.released >> one.result;
            holds.push_back(std::move(one));
        } else if (kind == 'N') {
            line >> thread;
            auto call = open_calls.extract(thread).mapped();
            line >> call.returned >> call.result;
            attempts.push_back(std::move(call));
        } else if (kind == 'U') {
            guarded_write one;
            line >> one.name >> thread >> one.token >> one.before >> one.after >> one.acknowledged;
            writes.push_back(std::move(one));
        } else if (kind == 'W') {
            std::string name;
            micros at = 0;
            line >> name >> at;
            places.waiting(name, at);
        } else if (kind == 'A') {
            std::string name;
            std::int64_t token = 0;
            line >> name >> token;
            places.acquired(name, token);
        } else {
            notes.push_back(std::to_string(process) + ": " + text);
        }
    }
    for (auto& [thread, call] : open_calls) attempts.push_back(std::move(call));
    for (auto& [thread, one] : open_holds) holds.push_back(std::move(one));
    for (auto i = first; i < attempts.size(); ++i) places.match(attempts[i]);
}

violations overlaps(const history& all) {
    return overlapping(
        all,
        [](const observed_hold& one) {
            return interval{one.db_begin, one.db_end};
        },
        "overlap by the database's clock");
}

violations overlapping_beliefs(const history& all) {
    return overlapping(
        all,
        [](const observed_hold& one) {
            // Over before its thread could write down that it began: never believed.
            const bool no_hold = one.believed_until <= one.acquired;
            return no_hold ? interval{0, 0} : interval{one.acquired, one.believed_until};
        },
        "overlap by the holders' belief");
}

violations token_regressions(const history& all) {
    violations found;
    for (auto& [name, holds] : holds_in_token_order(all)) {
        for (std::size_t i = 1; i < holds.size(); ++i) {
            const auto& before = *holds[i - 1];
            const auto& after = *holds[i];
            if (before.token == after.token) {
                found.push_back("one token twice: " + of(before) + ", " + of(after));
            } else if (before.db_begin > after.db_begin && after.db_begin != 0 &&
                       !was_forced(all, before)) {
                found.push_back("a smaller token later: " + of(before) + ", before it " +
                                of(after));
            }
        }
    }
    return found;
}

violations unfair_calls(const history& all) {
    by_name<attempt> names;
    for (const auto& each : all.attempts) {
        if (each.queues && each.token != 0) names[each.name].push_back(&each);
    }
    violations found;
    for (auto& [name, served] : names) {
        std::sort(served.begin(), served.end(),
                  [](const attempt* a, const attempt* b) { return a->token > b->token; });
        micros earliest = never;  // the earliest enqueue of those served later
        const attempt* whose = nullptr;
        for (const attempt* each : served) {
            if (earliest < each->called) {
                found.push_back(name + ": token " + std::to_string(each->token) +
                                ", asked for at " + std::to_string(each->called) +
                                ", was served before token " + std::to_string(whose->token) +
                                ", whose place was taken by " + std::to_string(earliest));
            }
            if (each->waiting != 0 && each->waiting < earliest) {
                earliest = each->waiting;
                whose = each;
            }
        }
    }
    return found;
}

violations unexpected_results(const history& all, const std::vector<std::string>& allowed) {
    const std::set<std::string> good{allowed.begin(), allowed.end()};
    std::map<std::string, int> bad;
    for (const auto& each : all.attempts) {
        if (!each.result.empty() && !good.contains(each.result)) ++bad["acquire: " + each.result];
    }
    for (const auto& each : all.holds) {
        if (!each.result.empty() && !good.contains(each.result)) ++bad["release: " + each.result];
    }
    violations found;
    for (const auto& [what, count] : bad) found.push_back(std::to_string(count) + " x " + what);
    return found;
}

std::string failures_in(const history& all) {
    std::set<std::string> found;
    for (const auto& note : all.notes) {
        for (const char* kind : {"# acquire:", "# release:", "# write:", "# look:"}) {
            const auto at = note.find(kind);
            if (at != std::string::npos) found.insert(note.substr(at));
        }
    }
    std::string text;
    for (const auto& each : found) {
        if (text.size() < 4'000) text += "\n  " + each;
    }
    return text;
}

std::vector<hand_off> hand_offs(const history& all) {
    std::vector<hand_off> found;
    for (auto& [name, holds] : holds_in_token_order(all)) {
        for (std::size_t i = 1; i < holds.size(); ++i) {
            const auto& before = *holds[i - 1];
            const auto& after = *holds[i];
            if (before.release_called == 0 || after.called > before.release_called) continue;
            found.push_back(
                {name, before.release_called, after.acquired - before.release_called, after.token});
        }
    }
    return found;
}

micros percentile(std::vector<hand_off> all, double share) {
    if (all.empty()) return 0;
    std::sort(all.begin(), all.end(),
              [](const hand_off& a, const hand_off& b) { return a.took < b.took; });
    const auto at =
        static_cast<std::size_t>(std::lround(share * static_cast<double>(all.size() - 1)));
    return all[at].took;
}

std::string summary(const std::vector<hand_off>& all) {
    std::ostringstream text;
    text << all.size() << " hand-offs: p50 " << percentile(all, 0.5) << " us, p99 "
         << percentile(all, 0.99) << " us, p99.9 " << percentile(all, 0.999) << " us, longest "
         << percentile(all, 1.0) << " us";
    return text.str();
}

violations late_grants(const history& all, const std::vector<fault>& faults,
                       const liveness& bounds) {
    violations found;
    const auto check = [&](const observed_hold& before, micros from, micros until,
                           const std::string& what) {
        from = std::max(from, before.released != 0 ? before.release_called : before.acquired);
        const micros fault = last_fault_before(faults, before.acquired - bounds.after_fault, until);
        const micros bound = fault != 0 ? bounds.after_fault : bounds.usual;
        from = std::max(from, fault);
        if (until - from <= bound) return;
        found.push_back(what + " came " + std::to_string(until - from) + " us after the " +
                        (fault == from ? "fault" : "release or call") + ", bound " +
                        std::to_string(bound));
    };
    const auto names = holds_in_token_order(all);
    for (const auto& [name, holds] : names) {
        for (std::size_t i = 1; i < holds.size(); ++i) {
            check(*holds[i - 1], holds[i]->called, holds[i]->acquired, of(*holds[i]));
        }
    }
    // A waiter that was not served may have waited for a free lease.
    const auto last_before = latest_of(names);
    for (const auto& each : all.attempts) {
        if (each.token != 0 || each.returned == 0 || !each.queues) continue;
        const observed_hold* const last = last_before(each.name, each.returned);
        if (!last || last->released == 0 || last->released > each.returned) continue;
        check(*last, each.called, each.returned,
              "the vain end of a wait for " + each.name + " in process " +
                  std::to_string(each.process));
    }
    return found;
}

std::string told(const violations& all) {
    std::ostringstream text;
    text << all.size() << " violations";
    for (std::size_t i = 0; i < std::min<std::size_t>(all.size(), 8); ++i) text << "\n  " << all[i];
    return text.str();
}

}  // namespace stress
