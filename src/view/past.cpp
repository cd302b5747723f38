#include "view/past.hpp"

#include "sql/run_statement.hpp"
#include "sql/session_settings.hpp"
#include "sql/statements.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace rowlock::view {
namespace {

using enum history_kind;

constexpr std::array names{
    "held",          "released", "handed_over", "reclaimed", "deadline_passed", "session_expired",
    "session_ended", "expired",  "forced",      "altered",   "unknown"};

bool begins_hold(history_kind kind) {
    return kind == granted || kind == handed_over || kind == taken_over || kind == reclaimed;
}

int strength(lock_mode mode) {
    return mode == lock_mode::shared ? 0 : mode == lock_mode::upgradeable ? 1 : 2;
}

class folder {
public:
    explicit folder(std::span<const history_record> records) : records_{records} {
        for (const auto& one : records_) {
            if (one.session == session_id{} || one.host.empty()) continue;
            clients_.emplace(one.session, &one);
        }
    }

    std::vector<past_hold> fold() {
        for (const auto& one : records_) take(one);
        for (const auto& [of, open] : open_) {
            for (const auto index : open) settle(index);
        }
        return std::move(holds_);
    }

private:
    using lock_key = std::pair<history_of, std::string>;
    using grant_key = std::tuple<history_of, std::string, grant_id>;

    struct session_end {
        history_time at;
        ending how;
    };

    static lock_key lock_of(const history_record& one) { return {one.of, one.name}; }
    static grant_key grant_of(const history_record& one) {
        return {one.of, one.name, one.grant_id};
    }

    void take(const history_record& one) {
        switch (one.kind) {
            case session_ended:
                ends_.emplace(one.session, session_end{one.at, ending::session_ended});
                return;
            case session_expired:
                ends_.emplace(one.session,
                              session_end{one.ends_at.value_or(one.at), ending::session_expired});
                return;
            case queued:
                queued_[grant_of(one)] = one.at;
                return;
            case session_opened:
            case left:
            case capacity_set:
                return;
            default:
                break;
        }
        if (one.of == history_of::lease) return take_lease(one);
        if (one.kind != deleted) take_permits(one);
    }

    void take_lease(const history_record& one) {
        auto& open = open_[lock_of(one)];
        const bool same = !open.empty() && is_of(holds_[open.back()], one);
        if (begins_hold(one.kind)) {
            end_predecessor(one);
            return begin(one);
        }
        switch (one.kind) {
            case deleted:
                if (!open.empty()) end_over(open.back(), one.at);
                open.clear();
                return;
            case altered:
                if (same) return update(open.back(), one);
                for (const auto index : open) end(index, one.at, ending::altered);
                open.clear();
                if (one.session != session_id{}) begin(one);
                return;
            default:
                break;
        }
        // Records are missing: whatever was held before ended in between.
        if (!open.empty() && !same) open.clear();
        take_of_hold(one);
    }

    void take_permits(const history_record& one) {
        if (one.kind == granted) return begin(one);
        if (one.kind == reclaimed) {
            const auto before = found_or_cut(one, one.grant_id, one.previous_session);
            end(before, one.at, ending::reclaimed);
            close(one, before);
            begin(one);
            holds_.back().mode = holds_[before].mode;  // with its upgrade
            return;
        }
        take_of_hold(one);
    }

    /// A record that tells of a hold, and begins none.
    void take_of_hold(const history_record& one) {
        const auto index = found_or_cut(one, one.grant_id);
        update(index, one);
        switch (one.kind) {
            case released:
                end(index, one.at, ending::released);
                break;
            case expired:
                end_over(index, one.at);
                break;
            case forced:
                end(index, one.at, ending::forced);
                holds_[index].ended_by = one.note;
                holds_[index].ended_by_login = one.db_user;
                break;
            case asked:
                holds_[index].asked.push_back({.at = one.at,
                                               .by = one.note,
                                               .reason = one.reason,
                                               .until = one.ends_at,
                                               .db_user = one.db_user});
                return;
            default:
                return;
        }
        close(one, index);
    }

    /// The lease passes from the hold that the row named before.
    void end_predecessor(const history_record& one) {
        auto& open = open_[lock_of(one)];
        if (one.kind == granted) return open.clear();  // it was free: the end is not recorded
        if (open.empty() || holds_[open.back()].session != one.previous_session) {
            open.clear();
            if (one.previous_session == session_id{}) return;
            const auto same_grant = one.kind == reclaimed ? one.grant_id : grant_id{};
            add(one, same_grant, one.previous_session);
        }
        const auto before = open.back();
        open.clear();
        if (one.kind == taken_over) return end_over(before, one.at);
        end(before, one.at, one.kind == reclaimed ? ending::reclaimed : ending::handed_over);
    }

    static bool is_of(const past_hold& hold, const history_record& one) {
        return hold.session == one.session && hold.grant_id == one.grant_id;
    }

    void begin(const history_record& one) {
        const auto index = add(one, one.grant_id, one.session);
        auto& hold = holds_[index];
        hold.from = one.at;
        hold.begun = one.kind;
        hold.note = one.note;
        if (const auto place = queued_.find(grant_of(one)); place != queued_.end()) {
            hold.waited = one.at - place->second;
            queued_.erase(place);
        }
        update(index, one);
    }

    /// A hold of which only what comes after its beginning is known so far.
    std::size_t add(const history_record& one, grant_id grant, session_id session) {
        past_hold hold{.of = one.of,
                       .name = one.name,
                       .session = session,
                       .grant_id = grant,
                       .seen = one.at,
                       .first_record = one.id};
        if (const auto known = clients_.find(session); known != clients_.end()) {
            hold.owner = known->second->owner;
            hold.host = known->second->host;
            hold.program = known->second->program;
            hold.pid = known->second->pid;
        }
        holds_.push_back(std::move(hold));
        last_.push_back(nullptr);
        open_[lock_of(one)].push_back(holds_.size() - 1);
        return holds_.size() - 1;
    }

    std::size_t found_or_cut(const history_record& one, grant_id grant) {
        return found_or_cut(one, grant, one.session);
    }

    std::size_t found_or_cut(const history_record& one, grant_id grant, session_id session) {
        for (const auto index : open_[lock_of(one)]) {
            const auto& hold = holds_[index];
            if (hold.grant_id == grant && hold.session == session) return index;
        }
        return add(one, grant, session);
    }

    void update(std::size_t index, const history_record& one) {
        auto& hold = holds_[index];
        last_[index] = &one;
        // A forced release uses a token up.
        if (one.kind != forced && one.token > hold.token) hold.token = one.token;
        if (one.kind == asked || one.kind == renewed || begins_hold(one.kind)) {
            hold.deadline = one.ends_at;
        }
        if (one.of == history_of::semaphore) hold.permits = one.permits;
        if (const auto mode = one.mode();
            mode && (!hold.mode || strength(*mode) > strength(*hold.mode))) {
            hold.mode = mode;
        }
        if (hold.note.empty() && one.kind != forced && one.kind != asked) hold.note = one.note;
    }

    void end(std::size_t index, history_time at, ending how) {
        holds_[index].to = at;
        holds_[index].how = how;
    }

    void close(const history_record& one, std::size_t index) {
        std::erase(open_[lock_of(one)], index);
    }

    /// By its session or its deadline, whichever came first; at the latest when that was noticed.
    void end_over(std::size_t index, history_time noticed) {
        auto& hold = holds_[index];
        end(index, noticed, ending::expired);
        if (hold.deadline && *hold.deadline <= *hold.to) {
            end(index, *hold.deadline, ending::deadline_passed);
        }
        const auto session = ends_.find(hold.session);
        if (session == ends_.end() || session->second.at > *hold.to) return;
        end(index, std::max(session->second.at, hold.from.value_or(hold.seen)),
            session->second.how);
    }

    /// A hold whose end is not recorded: the tables know whether it is held.
    void settle(std::size_t index) {
        const auto* const last = last_[index];
        auto& hold = holds_[index];
        if (last == nullptr) return;
        switch (last->now) {
            case hold_now::held:
                hold.how = ending::held;
                return;
            case hold_now::over:
                end_over(index, *last->over_since);
                if (hold.how == ending::expired) hold.how = ending::session_expired;
                return;
            case hold_now::ended:
                end_over(index, last->at + last->age);
                if (hold.how != ending::expired) return;
                hold.how = ending::session_ended;
                hold.to.reset();
                return;
            case hold_now::gone:
                return;
        }
    }

    const std::span<const history_record> records_;
    std::vector<past_hold> holds_{};
    std::vector<const history_record*> last_{};  ///< of each hold that began, or is spoken of
    std::map<lock_key, std::vector<std::size_t>> open_{};
    std::map<session_id, const history_record*> clients_{};
    std::map<session_id, session_end> ends_{};
    std::map<grant_key, history_time> queued_{};
};

constexpr std::chrono::seconds whole_reading{60};

/// For each of so many sessions at most the end is looked up.
constexpr std::size_t most_sessions = 64;

/// The records of the ends of sessions that these holds need.
std::vector<history_record> session_ends(sql::connection& db, const sql::table_names& tables,
                                         const std::vector<past_hold>& holds, sql::deadline until) {
    const auto what = sql::load_statement(db.speaks(), "history_session_end", {.tables = tables});
    std::vector<history_record> ends;
    std::set<session_id> asked;
    for (const auto& hold : holds) {
        const bool open_end = hold.how == ending::session_ended && !hold.to;
        if (hold.how != ending::expired && !open_end) continue;
        if (asked.size() == most_sessions) break;
        if (!asked.insert(hold.session).second) continue;
        const std::int64_t after = hold.from ? hold.first_record : 0;
        const auto rows = sql::run(db, what, until, hold.session, after);
        if (rows.empty()) continue;
        history_record one;
        one.session = hold.session;
        one.kind = rows.text(0, 0) == "session_expired" ? session_expired : session_ended;
        one.at = history_time{std::chrono::microseconds{rows.integer(0, 1)}};
        if (const auto expiry = rows.maybe_integer(0, 2)) {
            one.ends_at = history_time{std::chrono::microseconds{*expiry}};
        }
        ends.push_back(std::move(one));
    }
    return ends;
}

}  // namespace

const char* to_string(ending how) noexcept {
    return names.at(static_cast<std::size_t>(how));
}

std::vector<past_hold> holds_in(std::span<const history_record> records) {
    return folder{records}.fold();
}

std::string text_of_end(const past_hold& hold) {
    std::string text = [&]() -> std::string {
        switch (hold.how) {
            case ending::held:
                return "still held";
            case ending::released:
                return "released";
            case ending::handed_over:
                return "handed over";
            case ending::reclaimed:
                return "taken on by its owner's next session";
            case ending::deadline_passed:
                return "its deadline passed";
            case ending::session_expired:
                return "its session expired";
            case ending::session_ended:
                return "its session ended";
            case ending::expired:
                return "its session or deadline expired";
            case ending::forced: {
                const auto& by = hold.ended_by.empty() ? hold.ended_by_login : hold.ended_by;
                return by.empty() ? "broken" : "broken by " + by;
            }
            case ending::altered:
                return "the tables were changed by other means";
            case ending::unknown:
                break;
        }
        return "its end is not in these records";
    }();
    for (const auto& each : hold.asked) {
        text += "; asked for by " + (each.by.empty() ? each.db_user : each.by);
        if (!each.reason.empty()) text += ": " + each.reason;
    }
    return text;
}

past read_past(const sql::connection_source& source, const history_query& query) {
    const auto until = std::chrono::steady_clock::now() + whole_reading;
    const auto db = sql::connect_stated(source, until);
    past found{.records = read_history(*db, source.tables(), query, until)};
    if (found.records.empty()) return found;
    found.now = found.records.back().at + found.records.back().age;
    found.holds = holds_in(found.records);
    const auto ends = session_ends(*db, source.tables(), found.holds, until);
    if (ends.empty()) return found;
    auto all = ends;  // sessions do not come back: their ends may stand first
    all.insert(all.end(), found.records.begin(), found.records.end());
    found.holds = holds_in(all);
    return found;
}

}  // namespace rowlock::view
