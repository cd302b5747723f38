#include "driver/refusal.hpp"

#include "sql/too_many_connections.hpp"

#include <string>
#include <string_view>
#include <utility>

namespace rowlock::driver {
namespace {

struct advice {
    std::string_view text;
    bool quote;  // the server's words hold names at most, never a parameter's value
};

/// A setting of the caller's connection that forbids a statement; empty if it is none.
std::string_view forbidding(const error::server_report& report) {
    switch (report.native_code) {
        case 1104:
            return "max_join_size";
        case 1175:
            return "sql_safe_updates";
        case 1792:
            return "transaction_read_only";
        default:
            return report.sqlstate == "25006" ? "transaction_read_only" : "";
    }
}

advice advice_for(errc kind, const error::server_report& report) {
    if (sql::too_many_connections(kind, report.sqlstate, report.native_code)) {
        return {
            "the database has no connection left: close some, or raise its limit "
            "(docs/deploying.md "
            "says how many rowlock needs)",
            true};
    }
    switch (kind) {
        case errc::schema_outdated:
            return {
                "a table or column is missing: run `rowlock migrate`, and check that schema and "
                "prefix are the ones it was run with",
                true};
        case errc::access_denied:
            return {"the database denied access: check the user, its password and its rights",
                    true};
        case errc::read_only:
            return {"the database accepts no writes: connect to the primary", true};
        case errc::out_of_resources:
            return {"the database is out of space, memory or connections: free some and try again",
                    true};
        case errc::database_unreachable:
            return {"the database is not there or not ready: check the address, then try again",
                    true};
        case errc::timed_out:
            return {
                "the wait for a lock, or the statement, reached its time limit; nothing was "
                "done: try again",
                true};
        case errc::deadlock:
            return {
                "the database chose this transaction as a deadlock victim; nothing was done: "
                "repeat it",
                false};
        case errc::conflict:
            return {"a concurrent change won; nothing was done: repeat the transaction", false};
        case errc::unique_violation:
            return {"a row with this key exists", false};
        case errc::unsupported:
            return {"the database does not support this statement", false};
        default:
            return {"the database refused the statement: see server_message()", false};
    }
}

}  // namespace

error refusal(errc kind, error::server_report report) {
    const auto [text, quote] = advice_for(kind, report);
    std::string message{text};
    if (const auto setting = forbidding(report); !setting.empty()) {
        message.append(", or change ").append(setting).append(" of this connection");
    }
    if (quote && !report.message.empty()) message += ": " + report.message;
    if (!report.sqlstate.empty()) message += " (SQLSTATE " + report.sqlstate + ")";
    return {kind, message, std::move(report)};
}

error already_dead() {
    return {errc::database_unreachable,
            "this connection is gone and nothing was sent: take a new one"};
}

error too_late() {
    return {errc::timed_out, "the deadline had passed; nothing was sent"};
}

error broken(error::server_report report) {
    return {errc::outcome_unknown,
            "the connection broke before the answer came: find out whether the statement happened",
            std::move(report)};
}

error unanswered() {
    return {errc::outcome_unknown,
            "no answer came by the deadline: find out whether the statement happened"};
}

error not_connected() {
    return {errc::database_unreachable,
            "no answer from the database in time: check address, port and firewall"};
}

}  // namespace rowlock::driver
