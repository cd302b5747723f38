#include "lock/protocol/lease/lease_dialects.hpp"
#include "sql/connection_memory.hpp"
#include "sql/run_statement.hpp"
#include "sql/server_facts.hpp"
#include "sql/session_settings.hpp"
#include <rowlock/error.hpp>

#include <string>

namespace rowlock::protocol {
namespace {

using std::chrono::milliseconds;

/// Probes, then grants by compare-and-set on what the probe saw. InnoDB shows a commit before it is
/// on disk.
class mysql_lease_protocol final : public common_lease_protocol {
public:
    explicit mysql_lease_protocol(const sql::statement_set& statements)
        : common_lease_protocol{statements},
          prefix_{statements.options().tables.prefix},
          meet_server_{statements("meet_server")},
          take_{statements("take")},
          insert_lease_{statements("insert_lease")},
          confirm_lease_{statements("confirm_lease")} {}

    void set_up(sql::connection& db, milliseconds statement_timeout,
                sql::deadline until) const override {
        if (!db.keeps_session_state()) return;
        sql::state_settings(db, {.statement = statement_timeout}, until);
        sql::memory_of(db).server = sql::facts_of(db, until).server;  // already known
    }

    [[nodiscard]] std::optional<std::string> server_of_again(sql::connection& db,
                                                             sql::deadline until) const override {
        return sql::memory_of(db).server = sql::ask_facts_again(db, until).server;
    }

    std::string open_session(sql::connection& db, const session_row& row,
                             sql::deadline until) const override {
        // A pooled connection may lead to a server that has left its group since.
        sql::require_membership(db, until);
        std::string server = server_of(db, until).value();
        const auto open = [&] {
            return changed_one(run(db, open_session_, until, row.id, row.owner, row.host, row.pid,
                                   row.program, row.ttl.count(), row.wake.number, row.wake.secret,
                                   row.wake.mailbox, server));
        };
        if (open()) return server;
        refuse_former_member(db, server, until);
        run(db, meet_server_, until, server);
        if (!open()) throw no_token_floor();
        return server;
    }

    attempt acquire(sql::connection& db, const grant_request& request,
                    sql::deadline until) const override {
        const lease_probe seen = probe(db, request.name, request.session, until);
        const attempt judged = judge(request, seen);
        if (judged.what != attempt::outcome::contested) return judged;
        return take_probed(db, request, seen, until);
    }

private:
    /// Without its plugin, a member of a MySQL group looks like any other server, and would grant
    /// what the group grants.
    void refuse_former_member(sql::connection& db, std::string_view server,
                              sql::deadline until) const {
        const auto row = run(db, read_floor_, until);
        if (row.empty() || !row.text(0, 1).starts_with("group:") || server.starts_with("group:")) {
            return;
        }
        db.discard();
        throw error{
            errc::database_unreachable,
            "the tables were last used in a MySQL group, and this server is in none: connect "
            "to a member. If it is to be alone from now on, say so once: update " +
                prefix_ + "token_floor set server_identity = 'alone' (docs/deploying.md)"};
    }

    attempt take_probed(sql::connection& db, const grant_request& request, const lease_probe& seen,
                        sql::deadline until) const {
        const auto thread = sql::text_or_null(request.thread);
        const auto note = sql::text_or_null(request.note);
        try {
            const auto done =
                seen.present
                    ? run(db, take_, until, request.name, request.session, request.grant_id, thread,
                          note, request.deadline_us, seen.token, seen.next_token)
                    : run(db, insert_lease_, until, request.name, request.session, request.grant_id,
                          thread, note, request.deadline_us, seen.next_token);
            if (changed_one(done)) return {attempt::outcome::granted, seen.next_token, {}};
        } catch (const error& failure) {
            if (!another_inserts(failure)) throw;
        }
        return {attempt::outcome::contested, 0, seen};
    }

    [[nodiscard]] bool is_durable(sql::connection& db, std::string_view name,
                                  const lease_probe& seen, sql::deadline until) const override {
        if (!seen.present) return true;
        return changed_one(run(db, confirm_lease_, until, name, seen.token));
    }

    const std::string prefix_;
    const sql::statement meet_server_, take_, insert_lease_, confirm_lease_;
};

}  // namespace

std::unique_ptr<const lease_protocol> make_mysql_leases(const sql::statement_set& statements) {
    return std::make_unique<const mysql_lease_protocol>(statements);
}

}  // namespace rowlock::protocol
