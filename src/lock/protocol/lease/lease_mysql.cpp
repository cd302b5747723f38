#include "lock/protocol/lease/lease_dialects.hpp"
#include "sql/run_statement.hpp"
#include <rowlock/error.hpp>

namespace rowlock::protocol {
namespace {

/// Probes, then grants by compare-and-set on what the probe saw. InnoDB shows a commit before it is
/// on disk.
class mysql_lease_protocol final : public lease_protocol {
public:
    explicit mysql_lease_protocol(const sql::statement_set& statements)
        : lease_protocol{statements},
          take_{statements("take")},
          insert_lease_{statements("insert_lease")},
          confirm_lease_{statements("confirm_lease")} {}

    attempt acquire(sql::connection& db, const grant_request& request,
                    sql::deadline until) const override {
        const lease_probe seen = probe(db, request.name, request.session, until);
        const attempt judged = judge(request, seen);
        if (judged.what != attempt::outcome::contested) return judged;
        if (seen.next_token == 0) throw no_token_floor();
        return take_probed(db, request, seen, until);
    }

private:
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

    const sql::statement take_, insert_lease_, confirm_lease_;
};

}  // namespace

std::unique_ptr<const lease_protocol> make_mysql_leases(const sql::statement_set& statements) {
    return std::make_unique<const mysql_lease_protocol>(statements);
}

}  // namespace rowlock::protocol
