#include "stress/terms.hpp"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace stress {
namespace {

using rowlock::history_kind;
using rowlock::history_record;

micros time_of(std::chrono::sys_time<std::chrono::microseconds> when) {
    return when.time_since_epoch().count();
}

std::vector<const believed_term*> by_start(const election_history& all) {
    std::vector<const believed_term*> sorted;
    for (const auto& each : all.terms) sorted.push_back(&each);
    std::ranges::sort(sorted, {}, [](const believed_term* one) { return one->begun; });
    return sorted;
}

std::string of(const believed_term& one) {
    return "term " + std::to_string(one.term) + " of " + one.value + " from " +
           std::to_string(one.begun) + " until " + std::to_string(one.until);
}

std::string of(const office_state& one) {
    return (one.led ? "term " + std::to_string(one.term) + " of " + one.value
                    : "none after term " + std::to_string(one.term)) +
           " (from " + std::to_string(one.from) +
           (one.certain == never ? ")" : ", certain at " + std::to_string(one.certain) + ")");
}

std::string of(const look& one) {
    std::string text = "observer " + std::to_string(one.observer) + ", a look from " +
                       std::to_string(one.called) + " to " + std::to_string(one.returned) + ": ";
    if (!one.news) return text + "nothing new";
    return text + (one.led ? "term " + std::to_string(one.term) + " of " + one.value
                           : "none after term " + std::to_string(one.term));
}

/// Makes the states from the records, in their order.
class chronicle {
public:
    explicit chronicle(const election_history& all) {
        for (const auto& each : all.terms) believed_[each.term] = &each;
        states_.push_back({});
    }

    /// The end of each session comes before the records of what follows from it.
    void note_end(const history_record& one) {
        const bool expired = one.kind == history_kind::session_expired && one.ends_at;
        ends_.try_emplace(one.session,
                          end{expired ? time_of(*one.ends_at) : time_of(one.at), expired});
    }
    void see(const history_record& one) {
        switch (one.kind) {
            case history_kind::granted:
            case history_kind::taken_over:
                vacate_dead();
                [[fallthrough]];
            case history_kind::handed_over:
            case history_kind::reclaimed:
                lead(one);
                break;
            case history_kind::released:
            case history_kind::forced:
                vacate(time_of(one.at), never);
                break;
            case history_kind::expired:
                vacate_dead();
                break;
            default:
                break;
        }
    }
    std::vector<office_state> all() {
        vacate_dead();
        return std::move(states_);
    }

private:
    struct end {
        micros dead;
        bool expired;
    };

    void lead(const history_record& one) {
        const auto term = static_cast<std::int64_t>(one.token.value());
        const auto at = time_of(one.at);
        const auto found = believed_.find(term);
        const auto* its = found == believed_.end() ? nullptr : found->second;
        states_.push_back({term, true, one.note, at, its ? its->known : never});
        if (its && !its->proclaimed.empty()) {
            states_.push_back(
                {term, true, its->proclaimed, at, its->changed != 0 ? its->changed : never});
        }
        leader_ = one.session;
    }
    /// No commit marks the moment at which a session expires: each look from then on sees it, once
    /// it sees the grant at all.
    void vacate_dead() {
        if (!leader_) return;
        const auto found = ends_.find(*leader_);
        if (found == ends_.end()) return;
        const auto& last = states_.back();
        const auto [dead, expired] = found->second;
        const auto its = believed_.find(last.term);
        vacate(std::max(dead, last.from),
               expired && its != believed_.end() ? std::max(dead, its->second->known) : never);
    }
    void vacate(micros from, micros certain) {
        if (!leader_) return;
        states_.push_back({states_.back().term, false, {}, from, certain});
        leader_.reset();
    }

    std::map<std::int64_t, const believed_term*> believed_;
    std::unordered_map<rowlock::session_id, end> ends_;
    std::vector<office_state> states_;
    std::optional<rowlock::session_id> leader_;
};

/// Where a state stands among all.
class places {
public:
    explicit places(const std::vector<office_state>& states) {
        for (std::size_t i = 0; i < states.size(); ++i) {
            const auto& one = states[i];
            places_[{one.term, one.led, one.value}] = i;
            if (one.certain != never) certain_.emplace_back(one.certain, i);
        }
        std::ranges::sort(certain_);
        std::size_t last = 0;
        for (auto& [time, place] : certain_) place = last = std::max(last, place);
    }

    [[nodiscard]] std::optional<std::size_t> of(const look& one) const {
        const auto found = places_.find({one.term, one.led, one.value});
        if (found == places_.end()) return std::nullopt;
        return found->second;
    }
    /// The earliest state that a look may see that is called then.
    [[nodiscard]] std::size_t certain_by(micros time) const {
        const auto after = std::ranges::upper_bound(certain_, time, {},
                                                    [](const auto& each) { return each.first; });
        return after == certain_.begin() ? 0 : std::prev(after)->second;
    }

private:
    std::map<std::tuple<std::int64_t, bool, std::string>, std::size_t> places_;
    std::vector<std::pair<micros, std::size_t>> certain_;
};

/// One observer goes through the states.
class onlooker {
public:
    onlooker(const std::vector<office_state>& states, const places& where, micros slack,
             violations& found)
        : states_{states}, where_{where}, slack_{slack}, found_{found} {}

    void see(const look& one) {
        if (one.news) {
            const auto place = where_.of(one);
            if (!place) return add("saw what never was: ", one);
            if (place_ && *place == *place_) add("saw a state twice: ", one);
            if (place_ && *place < *place_) add("saw an earlier state after a later one: ", one);
            if (states_[*place].from > one.returned + slack_) {
                add("saw a state early, " + of_(*place) + ": ", one);
            }
            place_ = *place;
        } else if (!place_) {
            add("saw nothing at first: ", one);
        }
        const auto certain = where_.certain_by(one.called - slack_);
        if (place_.value_or(0) < certain) add("missed " + of_(certain) + ": ", one);
    }

private:
    [[nodiscard]] std::string of_(std::size_t place) const { return of(states_[place]); }
    void add(const std::string& what, const look& one) { found_.push_back(what + of(one)); }

    const std::vector<office_state>& states_;
    const places& where_;
    const micros slack_;
    violations& found_;
    std::optional<std::size_t> place_;
};

}  // namespace

// Lines, by their first letter:
//   L term value begun until known     leads, and believes
//   U until                            may believe longer
//   P value                            asks for another value
//   V changed                          which the database has, by then
//   E until                            believes no more: before its step that ends the term
//   O called returned                  an observer saw nothing new
//   S called returned term led value   an observer saw a state; value in its own words
// A killed process leaves whole lines only.
void election_history::read(const std::string& path, int process) {
    std::ifstream file{path};
    if (!file) throw std::runtime_error{"no log " + path};
    for (std::string text; std::getline(file, text);) {
        std::istringstream line{text};
        char kind = 0;
        line >> kind;
        if (kind == 'L') {
            auto& one = terms.emplace_back();
            line >> one.term >> one.value >> one.begun >> one.until >> one.known;
        } else if (kind == 'U') {
            line >> terms.back().until;
        } else if (kind == 'P') {
            line >> terms.back().proclaimed;
        } else if (kind == 'V') {
            line >> terms.back().changed;
        } else if (kind == 'E') {
            micros end = 0;
            line >> end;
            terms.back().until = std::min(terms.back().until, end);
        } else if (kind == 'O' || kind == 'S') {
            auto& one = looks.emplace_back();
            one.observer = process;
            one.news = kind == 'S';
            line >> one.called >> one.returned;
            if (one.news) line >> one.term >> one.led;
            if (one.led) line >> one.value;
        }
        if (line.fail()) {
            throw std::runtime_error{path + " has a line that is not understood: " + text};
        }
    }
}

std::vector<office_state> states_of(const std::string& office,
                                    const std::vector<history_record>& truth,
                                    const election_history& all) {
    chronicle past{all};
    for (const auto& each : truth) {
        if (each.kind == history_kind::session_ended ||
            each.kind == history_kind::session_expired) {
            past.note_end(each);
        } else if (each.of == rowlock::history_of::lease && each.name == office) {
            past.see(each);
        }
    }
    return past.all();
}

violations falling_terms(const election_history& all) {
    violations found;
    const believed_term* greatest = nullptr;
    for (const auto* each : by_start(all)) {
        if (greatest && each->term <= greatest->term) {
            found.push_back("no greater term: " + of(*each) + " after " + of(*greatest));
        }
        if (!greatest || each->term > greatest->term) greatest = each;
    }
    return found;
}

violations overlapping_terms(const election_history& all) {
    violations found;
    const believed_term* last = nullptr;
    for (const auto* each : by_start(all)) {
        if (last && each->begun < last->until) {
            found.push_back("two leaders: " + of(*last) + ", " + of(*each));
        }
        if (!last || each->until > last->until) last = each;
    }
    return found;
}

violations unrecorded_terms(const election_history& all, const std::vector<office_state>& states) {
    std::set<std::pair<std::int64_t, std::string>> recorded;
    for (const auto& each : states) {
        if (each.led) recorded.emplace(each.term, each.value);
    }
    violations found;
    for (const auto& each : all.terms) {
        if (!recorded.contains({each.term, each.value})) {
            found.push_back("the database gave another: " + of(each));
        }
    }
    return found;
}

violations wrong_looks(const election_history& all, const std::vector<office_state>& states,
                       micros slack) {
    violations found;
    const places where{states};
    std::map<int, onlooker> observers;
    for (const auto& each : all.looks) {
        observers.try_emplace(each.observer, states, where, slack, found).first->second.see(each);
    }
    return found;
}

violations unseen_ends(const election_history& all, const std::vector<office_state>& states,
                       int observers) {
    std::map<int, const look*> last;
    for (const auto& each : all.looks) {
        if (each.news) last[each.observer] = &each;
    }
    violations found;
    if (static_cast<int>(last.size()) != observers) {
        found.push_back(std::to_string(last.size()) + " observers saw something, of " +
                        std::to_string(observers));
    }
    const places where{states};
    for (const auto& [observer, seen] : last) {
        if (where.of(*seen) == states.size() - 1) continue;
        found.push_back("the end was " + of(states.back()) + ", not " + of(*seen));
    }
    return found;
}

violations late_leaders(const election_history& all, micros within) {
    violations found;
    const auto gaps = vacancies(all);
    for (std::size_t i = 0; i < gaps.size(); ++i) {
        if (gaps[i] <= within) continue;
        found.push_back("no leader for " +
                        (gaps[i] == never ? "ever" : std::to_string(gaps[i]) + " us") +
                        " after the kill at " + std::to_string(all.kills[i]));
    }
    return found;
}

std::vector<micros> vacancies(const election_history& all) {
    const auto sorted = by_start(all);
    std::vector<micros> found;
    for (const auto killed : all.kills) {
        const auto next = std::ranges::upper_bound(
            sorted, killed, {}, [](const believed_term* one) { return one->begun; });
        found.push_back(next == sorted.end() ? never : (*next)->begun - killed);
    }
    return found;
}

sights seen_by(int observer, const election_history& all, const std::vector<office_state>& states) {
    std::set<std::pair<std::int64_t, bool>> seen, there;
    std::set<std::int64_t> believed;
    for (const auto& each : all.looks) {
        if (each.observer == observer && each.news) seen.emplace(each.term, each.led);
    }
    for (const auto& each : states) {
        if (each.term != 0) there.emplace(each.term, each.led);
    }
    for (const auto& each : all.terms) believed.insert(each.term);
    sights counted;
    for (const auto& each : there) {
        const auto& [term, led] = each;
        const bool was_seen = seen.contains(each);
        if (!led) {
            ++(was_seen ? counted.vacancies : counted.missed_vacancies);
        } else if (believed.contains(term)) {
            ++(was_seen ? counted.terms : counted.missed_terms);
        } else {
            ++(was_seen ? counted.passing : counted.missed_passing);
        }
    }
    return counted;
}

}  // namespace stress
