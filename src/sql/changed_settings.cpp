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

void limit_idle_time(connection& db, std::chrono::milliseconds longest, deadline until) {
    using std::chrono::seconds;
    auto& settings = memory_of(db).settings;
    const seconds wanted = std::max(seconds{1}, std::chrono::ceil<seconds>(longest));
    if (settings.idle_limit_in_force && *settings.idle_limit_in_force <= wanted) return;
    // MySQL knows no limit for transactions alone.
    const std::string name =
        facts_of(db, until).mariadb ? "idle_transaction_timeout" : "wait_timeout";
    const std::int64_t before = db.query("select @@session." + name, until).integer(0, 0);
    if (before > 0 && before <= wanted.count()) {
        settings.idle_limit_in_force = seconds{before};
        return;
    }
    // Noted first: if the reply is lost, so is the connection.
    const std::int64_t original = settings.idle_limit ? settings.idle_limit->before : before;
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
        // The connection broke: so did the setting.
    }
}

}  // namespace rowlock::sql
