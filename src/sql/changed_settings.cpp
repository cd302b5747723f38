#include "sql/changed_settings.hpp"

#include "sql/connection_memory.hpp"
#include "sql/server_facts.hpp"

#include <unistd.h>

#include <algorithm>

namespace rowlock::sql {
namespace {

/// SET of a session variable neither ends nor joins a transaction.
void set_variable(connection& db, const std::string& name, const std::string& to, deadline until) {
    std::string text = "set session ";
    text.append(name).append(" = ").append(to);
    db.query(text, until);
}

}  // namespace

std::string_view idle_limit_name(bool mariadb) noexcept {
    // MySQL has no limit for transactions alone.
    return mariadb ? "idle_transaction_timeout" : "wait_timeout";
}

void limit_idle_time_again(connection& db, std::int64_t in_force, std::chrono::milliseconds longest,
                           deadline until) {
    auto& known = memory_of(db).settings.idle_limit_in_force;
    if (known && known->count() == in_force) return;
    known.reset();
    limit_idle_time(db, longest, until);
}

void limit_idle_time(connection& db, std::chrono::milliseconds longest, deadline until) {
    using std::chrono::seconds;
    auto& settings = memory_of(db).settings;
    const seconds wanted = std::max(seconds{1}, std::chrono::ceil<seconds>(longest));
    if (settings.idle_limit_in_force && *settings.idle_limit_in_force <= wanted) return;
    const std::string name{idle_limit_name(facts_of(db, until).mariadb)};
    const std::int64_t before = db.query("select @@session." + name, until).integer(0, 0);
    if (before > 0 && before <= wanted.count()) {
        settings.idle_limit_in_force = seconds{before};
        return;
    }
    // Noted first: if the reply is lost, so is the connection.
    const bool ours = settings.idle_limit && settings.idle_limit->ours == before;
    const std::int64_t original = ours ? settings.idle_limit->before : before;
    settings.idle_limit = {name, original, wanted.count(), ::getpid()};
    set_variable(db, name, std::to_string(wanted.count()), until);
    settings.idle_limit_in_force = wanted;
}

void connection::put_settings_back() noexcept {
    try {
        if (!memory_ || !memory_->settings.idle_limit || !alive()) return;
        const auto& change = *memory_->settings.idle_limit;
        if (change.process != ::getpid()) return;
        // Unless the caller, or another connection_ref of this handle, has changed it since.
        std::string text = "if(@@session.";
        text.append(change.variable).append(" = ").append(std::to_string(change.ours));
        text.append(", ").append(std::to_string(change.before)).append(", @@session.");
        text.append(change.variable).append(")");
        set_variable(*this, change.variable, text,
                     std::chrono::steady_clock::now() + std::chrono::seconds{1});
    } catch (...) {
        // The connection broke, and the setting is gone with it.
    }
}

}  // namespace rowlock::sql
