#include "lock/protocol/semaphore/semaphore_dialects.hpp"
#include "lock/protocol/semaphore/semaphore_two_step.hpp"
#include "sql/run_statement.hpp"

namespace rowlock::protocol {
namespace {

/// InnoDB shows a commit before it is on disk: a durable commit of ours follows what is read of a
/// grant.
class mysql_semaphore_protocol final : public two_step_semaphore_protocol {
public:
    explicit mysql_semaphore_protocol(const sql::statement_set& statements)
        : two_step_semaphore_protocol{statements},
          confirm_{statements("confirm_permit")},
          confirm_upgrade_{statements("confirm_upgrade")},
          mark_expired_{statements("mark_expired")} {}

    std::optional<queue_grant> served(sql::connection& db, std::string_view name,
                                      session_id session, grant_id grant_id,
                                      sql::deadline until) const override {
        const auto found = read(db, name, session, grant_id, until);
        if (!found) return std::nullopt;
        const auto confirmed = found->is_upgrade()
                                   ? sql::run(db, confirm_upgrade_, until, name, grant_id)
                                   : sql::run(db, confirm_, until, name, session, grant_id);
        return confirmed.affected() == 0 ? std::nullopt : std::optional{found->granted};
    }

private:
    void note_sweep(sql::connection& db, std::string_view name, grant_id grant_id,
                    session_id session, sql::deadline until) const override {
        sql::run(db, mark_expired_, until, name, grant_id, session);
    }

    const sql::statement confirm_, confirm_upgrade_, mark_expired_;
};

}  // namespace

std::unique_ptr<const semaphore_protocol> make_mysql_semaphores(
    const sql::statement_set& statements) {
    return std::make_unique<const mysql_semaphore_protocol>(statements);
}

}  // namespace rowlock::protocol
