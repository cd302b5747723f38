#include "cli/commands.hpp"
#include "cli/duration.hpp"
#include "cli/history_json.hpp"
#include "cli/near_names.hpp"
#include "cli/table.hpp"
#include <rowlock/history.hpp>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <map>
#include <optional>
#include <utility>

namespace rowlock::cli {

json to_json(const history_record& one) {
    json object{{"id", as_text(one.id)}, {"at", utc(one.at)}, {"kind", to_string(one.kind)}};
    const auto add_id = [&](const char* key, auto id) {
        if (id != decltype(id){}) object[key] = as_text(id);
    };
    const auto add_text = [&](const char* key, const std::string& text) {
        if (!text.empty()) object[key] = text;
    };
    add_text("name", one.name);
    add_id("token", one.token.value());
    add_id("session", one.session);
    add_id("grant_id", one.grant_id);
    add_id("ticket", one.ticket);
    add_id("previous_session", one.previous_session);
    if (one.ends_at) object["ends_at"] = utc(*one.ends_at);
    add_text("owner", one.owner);
    add_text("host", one.host);
    if (one.pid != 0) object["pid"] = one.pid;
    add_text("program", one.program);
    add_text("note", one.note);
    add_text("db_user", one.db_user);
    if (one.of != history_of::lease) {
        object["of"] = to_string(one.of);
        if (const auto mode = one.mode()) {
            object["mode"] = to_string(*mode);
        } else {
            object["permits"] = one.permits;
        }
    }
    return object;
}

namespace {

using std::chrono::microseconds;

/// The mode, or the number of permits.
std::string share_of(const history_record& one) {
    if (const auto mode = one.mode()) return to_string(*mode);
    return one.of == history_of::semaphore ? std::to_string(one.permits) : "-";
}

std::string local_time(std::chrono::sys_time<microseconds> at) {
    const auto seconds = std::chrono::floor<std::chrono::seconds>(at);
    const auto time = std::chrono::system_clock::to_time_t(seconds);
    return fmt::format("{:%F %T}.{:03}", fmt::localtime(time),
                       std::chrono::floor<std::chrono::milliseconds>(at - seconds).count());
}

/// Reads records in their order, and adds to each what earlier ones say of its session and its
/// hold.
class narrator {
public:
    std::vector<std::string> cells_of(const history_record& one) {
        note_session(one);
        return {local_time(one.at),
                to_string(one.kind),
                one.name.empty() ? "-" : one.name,
                share_of(one),
                one.token.value() == 0 ? "-" : as_text(one.token.value()),
                time_of(one),
                who(one),
                note_of(one)};
    }

private:
    using time_point = std::chrono::sys_time<microseconds>;

    void note_session(const history_record& one) {
        if (one.host.empty() || one.session == session_id{}) return;
        clients_[one.session] = fmt::format("{}[{}]@{}", one.program, one.pid, one.host);
    }

    std::string who(const history_record& one) const {
        const auto known = clients_.find(one.session);
        return known == clients_.end() ? "-" : known->second;
    }

    /// How long what ends here has lasted: a hold, a wait or a session.
    std::string time_of(const history_record& one) {
        switch (one.kind) {
            case history_kind::granted:
            case history_kind::handed_over:
            case history_kind::taken_over:
            case history_kind::reclaimed:
                holds_[one.grant_id] = one.at;
                return "-";
            case history_kind::queued:
                entries_[one.grant_id] = one.at;
                return "-";
            case history_kind::session_opened:
                sessions_[one.session] = one.at;
                return "-";
            case history_kind::released:
            case history_kind::expired:
            case history_kind::forced:
                return since(holds_, one.grant_id, one.at);
            case history_kind::left:
                return since(entries_, one.grant_id, one.at);
            case history_kind::session_ended:
            case history_kind::session_expired:
                return since(sessions_, one.session, one.at);
            case history_kind::downgraded:
            case history_kind::capacity_set:
            case history_kind::deleted:
            case history_kind::altered:
            case history_kind::renewed:
                break;
        }
        return "-";
    }

    template <typename Id>
    static std::string since(const std::map<Id, time_point>& begun, Id id, time_point end) {
        const auto known = begun.find(id);
        if (known == begun.end()) return "-";
        return to_text(std::chrono::floor<std::chrono::milliseconds>(end - known->second));
    }

    /// For a hold that was broken: who did it, which is its note then, and by which login.
    static std::string note_of(const history_record& one) {
        if (one.kind != history_kind::forced) return one.note;
        if (one.note.empty()) return one.db_user.empty() ? "" : "by login " + one.db_user;
        return fmt::format("by {}{}", one.note,
                           one.db_user.empty() ? "" : " (login " + one.db_user + ")");
    }

    std::map<session_id, std::string> clients_{};
    std::map<grant_id, time_point> holds_{}, entries_{};
    std::map<session_id, time_point> sessions_{};
};

}  // namespace

int history(const history_options& options) {
    const database in = find_database(options.database);
    const auto records = read_history(
        in.source, {.name = options.name, .since = options.since, .limit = options.limit});
    if (records.empty() && !options.name.empty()) require_known(in, options.name);
    if (options.json) {
        json array = json::array();
        for (const auto& one : records) array.push_back(to_json(one));
        print_json(json{{"database", in.source.description()}, {"records", array}});
        return success;
    }
    if (records.empty()) {
        print(fmt::format("nothing is recorded in {}\n", escaped(description_of(in))));
        return success;
    }
    narrator told;
    std::vector<std::vector<std::string>> cells;
    for (const auto& one : records) cells.push_back(told.cells_of(one));
    print(escaped(description_of(in)) + "\n" +
          table({"TIME", "WHAT", "NAME", "SHARE", "TOKEN", "FOR", "CLIENT", "NOTE"}, cells));
    return success;
}

}  // namespace rowlock::cli
