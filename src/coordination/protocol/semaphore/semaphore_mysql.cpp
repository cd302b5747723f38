#include "coordination/protocol/semaphore/semaphore_two_step.hpp"
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
          mark_expired_{statements("mark_expired")} {}

    std::optional<queue_grant> served(sql::connection& db, std::string_view name,
                                      session_id session, grant_id grant_id,
                                      sql::deadline until) const override {
        const auto found = read(db, name, session, grant_id, until);
        if (!found || sql::run(db, confirm_, until, name, session, grant_id).affected() == 0) {
            return std::nullopt;
        }
        return found->granted;
    }

private:
    void note_sweep(sql::connection& db, std::string_view name, grant_id grant_id,
                    session_id session, sql::deadline until) const override {
        sql::run(db, mark_expired_, until, name, grant_id, session);
    }

    const sql::statement confirm_, mark_expired_;
};

}  // namespace

std::unique_ptr<const semaphore_protocol> make_mysql_semaphores(
    const sql::statement_set& statements) {
    return std::make_unique<const mysql_semaphore_protocol>(statements);
}

}  // namespace rowlock::protocol
