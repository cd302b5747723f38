#include "coordination/protocol/hold/tickets.hpp"
#include "coordination/protocol/semaphore/semaphore_two_step.hpp"
#include "sql/run_statement.hpp"
#include "sql/value_list.hpp"

namespace rowlock::protocol {
namespace {

/// What a file shows outlives every process that reads it.
class sqlite_semaphore_protocol final : public two_step_semaphore_protocol {
public:
    explicit sqlite_semaphore_protocol(const sql::statement_set& statements)
        : two_step_semaphore_protocol{statements},
          cancel_{statements("cancel_permit_entries")},
          delete_entries_of_{statements("delete_permit_entries_of")},
          reap_waiters_{statements("reap_permit_waiters")} {}

    std::vector<grant_id> cancel(sql::connection& db, std::span<const grant_id> grant_ids,
                                 sql::deadline until) const override {
        std::vector<grant_id> deleted;
        sql::for_each_list(db, cancel_, std::array<sql::value, 0>{}, grant_ids, until,
                           [&](const sql::result& rows) {
                               for (const auto id : first_column(rows)) deleted.push_back(id);
                           });
        return deleted;
    }

    std::optional<queue_grant> served(sql::connection& db, std::string_view name,
                                      session_id session, grant_id grant_id,
                                      sql::deadline until) const override {
        const auto found = read(db, name, session, grant_id, until);
        return found ? std::optional{found->granted} : std::nullopt;
    }

    bool delete_entries_of(sql::connection& db, session_id session,
                           sql::deadline until) const override {
        sql::run(db, delete_entries_of_, until, session);
        return false;
    }

    std::int64_t remove_dead_entries(sql::connection& db, std::int64_t batch,
                                     sql::deadline until) const override {
        return sql::run(db, reap_waiters_, until, batch).affected();
    }

private:
    const sql::statement cancel_, delete_entries_of_, reap_waiters_;
};

}  // namespace

std::unique_ptr<const semaphore_protocol> make_sqlite_semaphores(
    const sql::statement_set& statements) {
    return std::make_unique<const sqlite_semaphore_protocol>(statements);
}

}  // namespace rowlock::protocol
